CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE api_key (
	id VARCHAR(32) NOT NULL,
	sha256 VARCHAR(64) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	role VARCHAR(16) NOT NULL,
	note TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	revoked_at BIGINT,
	expires_at BIGINT,
	CONSTRAINT pk_api_key PRIMARY KEY (id),
	CONSTRAINT uq_api_key_sha256 UNIQUE (sha256)
);
CREATE TABLE approval (
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	actor VARCHAR(128) NOT NULL,
	reason TEXT NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT pk_approval PRIMARY KEY (tenant, channel, checkpoint, actor)
);
CREATE TABLE attempt_output (
	tenant VARCHAR(128) NOT NULL,
	digest VARCHAR(80) NOT NULL,
	text TEXT NOT NULL,
	recorded_at BIGINT NOT NULL,
	CONSTRAINT pk_attempt_output PRIMARY KEY (tenant, digest)
);
CREATE TABLE audit_entry (
	tenant VARCHAR(128) NOT NULL,
	number BIGINT NOT NULL,
	actor VARCHAR(128) NOT NULL,
	action VARCHAR(32) NOT NULL,
	subject TEXT NOT NULL,
	facts TEXT NOT NULL,
	at BIGINT NOT NULL,
	previous_hash VARCHAR(64) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_audit_entry PRIMARY KEY (tenant, number)
);
CREATE TABLE benchmark_attempt (
	tenant VARCHAR(128) NOT NULL,
	suite VARCHAR(128) NOT NULL,
	suite_version VARCHAR(80) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	task VARCHAR(255) NOT NULL,
	attempt INTEGER NOT NULL,
	run VARCHAR(64) NOT NULL,
	status VARCHAR(16) NOT NULL,
	score FLOAT,
	error TEXT,
	completion_tokens BIGINT,
	prompt_tokens BIGINT,
	cost_usd FLOAT,
	latency_s FLOAT,
	steps BIGINT,
	tool_calls BIGINT,
	invalid_tool_calls BIGINT,
	edited BOOLEAN,
	asked BOOLEAN,
	bits_per_byte FLOAT,
	retries INTEGER NOT NULL,
	scored_at BIGINT NOT NULL,
	trial VARCHAR(64),
	audit TEXT,
	CONSTRAINT pk_benchmark_attempt PRIMARY KEY (tenant, suite, suite_version, checkpoint, task, attempt)
);
CREATE TABLE benchmark_journal (
	tenant VARCHAR(128) NOT NULL,
	suite VARCHAR(128) NOT NULL,
	suite_version VARCHAR(80) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	number BIGINT NOT NULL,
	kind VARCHAR(16) NOT NULL,
	document TEXT NOT NULL,
	at BIGINT NOT NULL,
	previous_hash VARCHAR(64) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_benchmark_journal PRIMARY KEY (tenant, suite, suite_version, checkpoint, number)
);
CREATE TABLE benchmark_run (
	id VARCHAR(64) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	suite VARCHAR(128) NOT NULL,
	suite_version VARCHAR(80) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	kind VARCHAR(32) NOT NULL,
	source TEXT NOT NULL,
	conditions TEXT,
	problems TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	finished_at BIGINT,
	CONSTRAINT pk_benchmark_run PRIMARY KEY (id)
);
CREATE TABLE chain_head (
	entries VARCHAR(32) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	place VARCHAR(512) NOT NULL,
	number BIGINT NOT NULL,
	at BIGINT NOT NULL,
	cut_number BIGINT NOT NULL,
	hash VARCHAR(64) NOT NULL,
	cut_hash VARCHAR(64) NOT NULL,
	signature VARCHAR(256),
	CONSTRAINT pk_chain_head PRIMARY KEY (entries, tenant, place)
);
CREATE TABLE channel_change (
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	version BIGINT NOT NULL,
	action VARCHAR(16) NOT NULL,
	checkpoint VARCHAR(128),
	digest VARCHAR(80),
	previous VARCHAR(128),
	canary VARCHAR(128),
	canary_share FLOAT,
	checkpoint_version BIGINT,
	canary_version BIGINT,
	pinned BOOLEAN NOT NULL,
	policy VARCHAR(80),
	verdict VARCHAR(80),
	overridden BOOLEAN NOT NULL,
	actor VARCHAR(128) NOT NULL,
	reason TEXT NOT NULL,
	at BIGINT NOT NULL,
	previous_hash VARCHAR(64) NOT NULL,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_channel_change PRIMARY KEY (tenant, channel, version)
);
CREATE TABLE checkpoint (
	tenant VARCHAR(128) NOT NULL,
	name VARCHAR(128) NOT NULL,
	digest VARCHAR(80) NOT NULL,
	uri TEXT NOT NULL,
	form VARCHAR(16) NOT NULL,
	parent VARCHAR(128),
	state VARCHAR(16) NOT NULL,
	checked VARCHAR(16) NOT NULL,
	bytes BIGINT,
	note TEXT NOT NULL,
	registered_by VARCHAR(128) NOT NULL,
	registered_at BIGINT NOT NULL,
	CONSTRAINT pk_checkpoint PRIMARY KEY (tenant, name),
	CONSTRAINT uq_checkpoint_tenant UNIQUE (tenant, digest)
);
CREATE TABLE checkpoint_move (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	from_state VARCHAR(16),
	to_state VARCHAR(16) NOT NULL,
	actor VARCHAR(128) NOT NULL,
	reason TEXT NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT pk_checkpoint_move PRIMARY KEY (id)
);
CREATE TABLE checkpoint_shard (
	tenant VARCHAR(128) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	shard VARCHAR(80) NOT NULL,
	CONSTRAINT pk_checkpoint_shard PRIMARY KEY (tenant, checkpoint, shard)
);
CREATE TABLE consent_change (
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	added_snap BIGINT NOT NULL,
	consent VARCHAR(16) NOT NULL,
	CONSTRAINT pk_consent_change PRIMARY KEY (tenant, session_id, added_snap)
);
CREATE TABLE consent_decision (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	subject VARCHAR(512) NOT NULL,
	consent VARCHAR(16) NOT NULL,
	reason TEXT NOT NULL,
	decided_by VARCHAR(128) NOT NULL,
	decided_at BIGINT NOT NULL,
	CONSTRAINT pk_consent_decision PRIMARY KEY (id)
);
CREATE TABLE console_session (
	token_sha256 VARCHAR(64) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	key_id VARCHAR(32) NOT NULL,
	person VARCHAR(200),
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,
	CONSTRAINT pk_console_session PRIMARY KEY (token_sha256)
);
CREATE TABLE delivery (
	target VARCHAR(64) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	next_version BIGINT NOT NULL,
	attempts INTEGER NOT NULL,
	try_at BIGINT NOT NULL,
	problem TEXT,
	CONSTRAINT pk_delivery PRIMARY KEY (target, tenant, channel)
);
CREATE TABLE erasure (
	id VARCHAR(32) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	value TEXT NOT NULL,
	digest VARCHAR(64) NOT NULL,
	reason TEXT NOT NULL,
	requested_by VARCHAR(128) NOT NULL,
	until_us BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL,
	progress TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	finished_at BIGINT,
	report TEXT,
	CONSTRAINT pk_erasure PRIMARY KEY (id)
);
CREATE TABLE erasure_session (
	erasure VARCHAR(32) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	named_us BIGINT,
	CONSTRAINT pk_erasure_session PRIMARY KEY (erasure, tenant, session_id)
);
CREATE TABLE follow_up_label (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	turn BIGINT NOT NULL,
	message VARCHAR(64) NOT NULL,
	label VARCHAR(32),
	drawn BOOLEAN NOT NULL,
	again BOOLEAN NOT NULL,
	until_us BIGINT NOT NULL,
	"by" VARCHAR(128) NOT NULL,
	is_model BOOLEAN NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT pk_follow_up_label PRIMARY KEY (id)
);
CREATE TABLE gate_policy (
	tenant VARCHAR(128) NOT NULL,
	digest VARCHAR(80) NOT NULL,
	text TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_gate_policy PRIMARY KEY (tenant, digest)
);
CREATE TABLE iceberg_namespace_properties (
	catalog_name VARCHAR(255) NOT NULL,
	namespace VARCHAR(255) NOT NULL,
	property_key VARCHAR(255) NOT NULL,
	property_value VARCHAR(1000) NOT NULL,
	CONSTRAINT pk_iceberg_namespace_properties PRIMARY KEY (catalog_name, namespace, property_key)
);
CREATE TABLE iceberg_publication (
	tenant VARCHAR(128) NOT NULL,
	snap BIGINT NOT NULL,
	files BIGINT NOT NULL,
	rows BIGINT NOT NULL,
	published_at BIGINT NOT NULL,
	CONSTRAINT pk_iceberg_publication PRIMARY KEY (tenant)
);
CREATE TABLE iceberg_tables (
	catalog_name VARCHAR(255) NOT NULL,
	table_namespace VARCHAR(255) NOT NULL,
	table_name VARCHAR(255) NOT NULL,
	metadata_location VARCHAR(1000),
	previous_metadata_location VARCHAR(1000),
	iceberg_type VARCHAR(5),
	CONSTRAINT pk_iceberg_tables PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE imported_source (
	tenant VARCHAR(128) NOT NULL,
	digest VARCHAR(32) NOT NULL,
	path TEXT NOT NULL,
	format VARCHAR(128) NOT NULL,
	mark VARCHAR(32) NOT NULL,
	imported_at BIGINT NOT NULL,
	reading BLOB,
	CONSTRAINT pk_imported_source PRIMARY KEY (tenant, digest)
);
CREATE TABLE judge_answer (
	"key" VARCHAR(64) NOT NULL,
	answer TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	tenant VARCHAR(128),
	session_id VARCHAR(512),
	CONSTRAINT pk_judge_answer PRIMARY KEY ("key")
);
CREATE TABLE judge_spending (
	run VARCHAR(128) NOT NULL,
	requests BIGINT NOT NULL,
	tokens BIGINT NOT NULL,
	CONSTRAINT pk_judge_spending PRIMARY KEY (run)
);
CREATE TABLE lake_commit (
	snap BIGINT NOT NULL,
	kind VARCHAR(16) NOT NULL,
	committed_at BIGINT NOT NULL,
	waited_us BIGINT,
	CONSTRAINT pk_lake_commit PRIMARY KEY (snap)
);
CREATE TABLE lake_head (
	id INTEGER NOT NULL,
	snap BIGINT NOT NULL,
	committed_at BIGINT NOT NULL,
	readable_from BIGINT NOT NULL,
	CONSTRAINT pk_lake_head PRIMARY KEY (id)
);
CREATE TABLE lease (
	name VARCHAR(64) NOT NULL,
	owner VARCHAR(64),
	epoch BIGINT NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT pk_lease PRIMARY KEY (name)
);
CREATE TABLE ledger (
	tenant VARCHAR(128) NOT NULL,
	source VARCHAR(512) NOT NULL,
	hour BIGINT NOT NULL,
	partition INTEGER NOT NULL,
	accepted BIGINT NOT NULL,
	stored BIGINT NOT NULL,
	duplicate BIGINT NOT NULL,
	rejected BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	erased BIGINT NOT NULL,
	dropped BIGINT NOT NULL,
	CONSTRAINT pk_ledger PRIMARY KEY (tenant, source, hour, partition)
);
CREATE TABLE live_look (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	since_version BIGINT NOT NULL,
	candidate VARCHAR(128) NOT NULL,
	incumbent VARCHAR(128) NOT NULL,
	document TEXT NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT pk_live_look PRIMARY KEY (id)
);
CREATE TABLE log_gap (
	id INTEGER NOT NULL,
	partition INTEGER NOT NULL,
	log_id VARCHAR(64) NOT NULL,
	from_offset BIGINT NOT NULL,
	to_offset BIGINT NOT NULL,
	found_at BIGINT NOT NULL,
	reason TEXT NOT NULL,
	accepted_at BIGINT,
	accepted_why TEXT,
	CONSTRAINT pk_log_gap PRIMARY KEY (id)
);
CREATE TABLE log_partition (
	partition INTEGER NOT NULL,
	log_id VARCHAR(64) NOT NULL,
	next_offset BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	owner VARCHAR(64),
	CONSTRAINT pk_log_partition PRIMARY KEY (partition)
);
CREATE TABLE log_shape (
	log_id VARCHAR(64) NOT NULL,
	partitions INTEGER NOT NULL,
	CONSTRAINT pk_log_shape PRIMARY KEY (log_id)
);
CREATE TABLE loop_cycle (
	tenant VARCHAR(128) NOT NULL,
	loop VARCHAR(128) NOT NULL,
	number BIGINT NOT NULL,
	channel VARCHAR(128) NOT NULL,
	file_digest VARCHAR(80) NOT NULL,
	budget_s BIGINT NOT NULL,
	parent VARCHAR(128),
	checkpoint VARCHAR(128),
	outcome VARCHAR(16),
	why TEXT NOT NULL,
	opened_at BIGINT NOT NULL,
	began_at BIGINT,
	ended_at BIGINT,
	CONSTRAINT pk_loop_cycle PRIMARY KEY (tenant, loop, number)
);
CREATE TABLE loop_stage (
	tenant VARCHAR(128) NOT NULL,
	loop VARCHAR(128) NOT NULL,
	cycle BIGINT NOT NULL,
	stage VARCHAR(32) NOT NULL,
	position INTEGER NOT NULL,
	state VARCHAR(16) NOT NULL,
	epoch BIGINT NOT NULL,
	owner VARCHAR(128),
	lease_until BIGINT NOT NULL,
	failures INTEGER NOT NULL,
	not_before BIGINT NOT NULL,
	why TEXT NOT NULL,
	inputs TEXT,
	inputs_digest VARCHAR(80),
	result TEXT,
	started_at BIGINT,
	tried_at BIGINT,
	ended_at BIGINT,
	CONSTRAINT pk_loop_stage PRIMARY KEY (tenant, loop, cycle, stage)
);
CREATE TABLE masked_session (
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	since_us BIGINT NOT NULL,
	CONSTRAINT pk_masked_session PRIMARY KEY (tenant, session_id)
);
CREATE TABLE mined_task (
	tenant VARCHAR(128) NOT NULL,
	suite VARCHAR(128) NOT NULL,
	task VARCHAR(128) NOT NULL,
	state VARCHAR(16) NOT NULL,
	why TEXT NOT NULL,
	session_id TEXT,
	prompt TEXT NOT NULL,
	facts TEXT NOT NULL,
	"by" TEXT,
	changed_at BIGINT NOT NULL,
	CONSTRAINT pk_mined_task PRIMARY KEY (tenant, suite, task)
);
CREATE TABLE reader_lease (
	id VARCHAR(64) NOT NULL,
	snap BIGINT NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT pk_reader_lease PRIMARY KEY (id)
);
CREATE TABLE redaction_count (
	tenant VARCHAR(128) NOT NULL,
	source VARCHAR(512) NOT NULL,
	hour BIGINT NOT NULL,
	rule VARCHAR(64) NOT NULL,
	matches BIGINT NOT NULL,
	CONSTRAINT pk_redaction_count PRIMARY KEY (tenant, source, hour, rule)
);
CREATE TABLE rejected (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	source VARCHAR(512) NOT NULL,
	received_at BIGINT NOT NULL,
	line BIGINT NOT NULL,
	reason TEXT NOT NULL,
	truncated BOOLEAN NOT NULL,
	replayed_at BIGINT,
	kind VARCHAR(128) NOT NULL,
	lines BIGINT NOT NULL,
	acknowledged BOOLEAN NOT NULL,
	file VARCHAR(255) NOT NULL,
	start BIGINT NOT NULL,
	length INTEGER NOT NULL,
	sha256 VARCHAR(64) NOT NULL,
	CONSTRAINT pk_rejected PRIMARY KEY (id)
);
CREATE TABLE rejection_fuse (
	tenant VARCHAR(128) NOT NULL,
	source VARCHAR(512) NOT NULL,
	tripped_at BIGINT NOT NULL,
	rejected BIGINT NOT NULL,
	seen BIGINT NOT NULL,
	reason TEXT NOT NULL,
	CONSTRAINT pk_rejection_fuse PRIMARY KEY (tenant, source)
);
CREATE TABLE replica (
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	replica VARCHAR(128) NOT NULL,
	part VARCHAR(16) NOT NULL,
	state VARCHAR(16) NOT NULL,
	wanted VARCHAR(128),
	version BIGINT NOT NULL,
	loaded VARCHAR(128),
	digest VARCHAR(80),
	problem TEXT,
	sidecar VARCHAR(32) NOT NULL,
	loaded_at BIGINT,
	since BIGINT NOT NULL,
	heard_at BIGINT NOT NULL,
	CONSTRAINT pk_replica PRIMARY KEY (tenant, channel, replica)
);
CREATE TABLE retention_rule (
	tenant VARCHAR(128) NOT NULL,
	kind VARCHAR(32) NOT NULL,
	age_s BIGINT,
	breaks_snapshots BOOLEAN NOT NULL,
	set_by VARCHAR(128) NOT NULL,
	set_at BIGINT NOT NULL,
	CONSTRAINT pk_retention_rule PRIMARY KEY (tenant, kind)
);
CREATE TABLE retention_run (
	tenant VARCHAR(128) NOT NULL,
	kind VARCHAR(32) NOT NULL,
	ended_at BIGINT NOT NULL,
	report TEXT NOT NULL,
	CONSTRAINT pk_retention_run PRIMARY KEY (tenant, kind)
);
CREATE TABLE reward_definition (
	version VARCHAR(64) NOT NULL,
	name VARCHAR(128) NOT NULL,
	text TEXT NOT NULL,
	listed BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	through_snap BIGINT NOT NULL,
	run_at BIGINT NOT NULL,
	through_decision BIGINT DEFAULT '0' NOT NULL,
	CONSTRAINT pk_reward_definition PRIMARY KEY (version)
);
CREATE TABLE reward_due (
	definition_version VARCHAR(64) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	due_at BIGINT NOT NULL,
	computed_at BIGINT NOT NULL,
	CONSTRAINT pk_reward_due PRIMARY KEY (definition_version, tenant, session_id)
);
CREATE TABLE reward_file (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	definition_version VARCHAR(64) NOT NULL,
	rows BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	sha256 VARCHAR(64) NOT NULL,
	sessions BIGINT NOT NULL,
	sessions_bytes BIGINT NOT NULL,
	sessions_sha256 VARCHAR(64) NOT NULL,
	lake_snap BIGINT NOT NULL,
	added_snap BIGINT NOT NULL,
	removed_snap BIGINT,
	tenant VARCHAR(128) NOT NULL,
	CONSTRAINT pk_reward_file PRIMARY KEY (id),
	CONSTRAINT uq_reward_file_name UNIQUE (name)
);
CREATE TABLE segment (
	id INTEGER NOT NULL,
	name VARCHAR(255) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	log_id VARCHAR(64),
	from_offset BIGINT,
	to_offset BIGINT,
	partition INTEGER NOT NULL,
	log_partitions INTEGER NOT NULL,
	schema_version INTEGER NOT NULL,
	rows BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	sessions_bytes BIGINT NOT NULL,
	ts_min BIGINT NOT NULL,
	ts_max BIGINT NOT NULL,
	added_snap BIGINT NOT NULL,
	sha256 VARCHAR(64) NOT NULL,
	sessions_sha256 VARCHAR(64) NOT NULL,
	session_filter BLOB NOT NULL,
	removed_snap BIGINT,
	changed_snap BIGINT,
	CONSTRAINT pk_segment PRIMARY KEY (id),
	CONSTRAINT uq_segment_name UNIQUE (name)
);
CREATE TABLE segment_intent (
	name VARCHAR(255) NOT NULL,
	partition INTEGER NOT NULL,
	epoch BIGINT,
	owner VARCHAR(64) NOT NULL,
	created_at BIGINT NOT NULL,
	claimed_at BIGINT,
	CONSTRAINT pk_segment_intent PRIMARY KEY (name)
);
CREATE TABLE session_link (
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	parent_session VARCHAR(512) NOT NULL,
	link VARCHAR(16) NOT NULL,
	CONSTRAINT pk_session_link PRIMARY KEY (tenant, session_id)
);
CREATE TABLE shard (
	id VARCHAR(80) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	name VARCHAR(128) NOT NULL,
	snap BIGINT NOT NULL,
	snapshot VARCHAR(128) NOT NULL,
	samples BIGINT NOT NULL,
	tokens BIGINT NOT NULL,
	trainable BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	session_filter BLOB NOT NULL,
	created_at BIGINT NOT NULL,
	added_snap BIGINT NOT NULL,
	gone VARCHAR(16),
	gone_at BIGINT,
	gone_why TEXT,
	record TEXT NOT NULL,
	CONSTRAINT pk_shard PRIMARY KEY (id, tenant)
);
CREATE TABLE shard_file (
	name VARCHAR(255) NOT NULL,
	shard VARCHAR(80) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	CONSTRAINT pk_shard_file PRIMARY KEY (name)
);
CREATE TABLE shard_left_out (
	shard VARCHAR(80) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	reason VARCHAR(64) NOT NULL,
	CONSTRAINT pk_shard_left_out PRIMARY KEY (shard, tenant, session_id, reason)
);
CREATE TABLE shard_mark (
	shard VARCHAR(80) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	session_id VARCHAR(512) NOT NULL,
	reason VARCHAR(32) NOT NULL,
	marked_at BIGINT NOT NULL,
	CONSTRAINT pk_shard_mark PRIMARY KEY (shard, tenant, session_id, reason)
);
CREATE TABLE snapshot (
	name VARCHAR(128) NOT NULL,
	snap BIGINT NOT NULL,
	note TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_snapshot PRIMARY KEY (name)
);
CREATE TABLE suite_version (
	tenant VARCHAR(128) NOT NULL,
	suite VARCHAR(128) NOT NULL,
	version VARCHAR(80) NOT NULL,
	tasks TEXT NOT NULL,
	content TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_suite_version PRIMARY KEY (tenant, suite, version)
);
CREATE TABLE tenant_offset (
	partition INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	next_offset BIGINT NOT NULL,
	CONSTRAINT pk_tenant_offset PRIMARY KEY (partition, tenant)
);
CREATE TABLE tenant_quota (
	tenant VARCHAR(128) NOT NULL,
	name VARCHAR(32) NOT NULL,
	maximum BIGINT NOT NULL,
	CONSTRAINT pk_tenant_quota PRIMARY KEY (tenant, name)
);
CREATE TABLE tenant_redaction (
	tenant VARCHAR(128) NOT NULL,
	secrets VARCHAR(16),
	personal VARCHAR(16),
	set_by VARCHAR(128) NOT NULL,
	set_at BIGINT NOT NULL,
	CONSTRAINT pk_tenant_redaction PRIMARY KEY (tenant)
);
CREATE TABLE tombstone (
	id INTEGER NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	kind VARCHAR(16) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	until_us BIGINT,
	erasure VARCHAR(32) NOT NULL,
	CONSTRAINT pk_tombstone PRIMARY KEY (id),
	CONSTRAINT uq_tombstone_tenant UNIQUE (tenant, kind, digest, erasure)
);
CREATE TABLE verdict (
	tenant VARCHAR(128) NOT NULL,
	id VARCHAR(80) NOT NULL,
	channel VARCHAR(128) NOT NULL,
	checkpoint VARCHAR(128) NOT NULL,
	document TEXT NOT NULL,
	made_at BIGINT NOT NULL,
	CONSTRAINT pk_verdict PRIMARY KEY (tenant, id)
);
CREATE TABLE webhook (
	id VARCHAR(32) NOT NULL,
	tenant VARCHAR(128) NOT NULL,
	channel VARCHAR(128),
	url TEXT NOT NULL,
	secret TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	removed_at BIGINT,
	CONSTRAINT pk_webhook PRIMARY KEY (id)
);
CREATE TABLE writer (
	owner VARCHAR(64) NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT pk_writer PRIMARY KEY (owner)
);
CREATE INDEX ix_audit_entry_subject ON audit_entry (tenant, subject);
CREATE INDEX ix_benchmark_run_checkpoint ON benchmark_run (tenant, checkpoint, suite);
CREATE INDEX ix_checkpoint_move_checkpoint ON checkpoint_move (tenant, checkpoint);
CREATE INDEX ix_checkpoint_shard_shard ON checkpoint_shard (tenant, shard);
CREATE INDEX ix_consent_decision_subject ON consent_decision (tenant, kind, subject);
CREATE INDEX ix_erasure_state ON erasure (state);
CREATE INDEX ix_follow_up_label_session ON follow_up_label (tenant, session_id);
CREATE INDEX ix_judge_answer_session ON judge_answer (tenant, session_id);
CREATE INDEX ix_lake_commit_committed_at ON lake_commit (committed_at);
CREATE INDEX ix_live_look_channel ON live_look (tenant, channel, since_version);
CREATE INDEX ix_rejected_file ON rejected (file);
CREATE INDEX ix_rejected_received_at ON rejected (received_at);
CREATE INDEX ix_rejected_tenant ON rejected (tenant, source);
CREATE INDEX ix_reward_due_at ON reward_due (definition_version, due_at);
CREATE INDEX ix_reward_file_live ON reward_file (definition_version, removed_snap);
CREATE INDEX ix_reward_file_tenant ON reward_file (tenant, removed_snap);
CREATE INDEX ix_segment_live ON segment (removed_snap, added_snap);
CREATE INDEX ix_segment_tenant ON segment (tenant, removed_snap);
CREATE INDEX ix_session_link_parent ON session_link (tenant, parent_session);
CREATE INDEX ix_shard_file_shard ON shard_file (shard, tenant);
CREATE INDEX ix_shard_name ON shard (tenant, name);
CREATE INDEX ix_tenant_offset_next ON tenant_offset (partition, next_offset);
CREATE INDEX ix_verdict_checkpoint ON verdict (tenant, checkpoint);
CREATE TRIGGER keep_benchmark_journal_delete BEFORE DELETE ON benchmark_journal BEGIN SELECT RAISE(ABORT, 'rows of benchmark_journal are evidence and stay'); END;
CREATE TRIGGER keep_benchmark_journal_update BEFORE UPDATE ON benchmark_journal BEGIN SELECT RAISE(ABORT, 'rows of benchmark_journal are evidence and stay'); END;
CREATE TRIGGER keep_channel_change_delete BEFORE DELETE ON channel_change BEGIN SELECT RAISE(ABORT, 'rows of channel_change are evidence and stay'); END;
CREATE TRIGGER keep_channel_change_update BEFORE UPDATE ON channel_change BEGIN SELECT RAISE(ABORT, 'rows of channel_change are evidence and stay'); END;
CREATE TRIGGER keep_checkpoint_move_delete BEFORE DELETE ON checkpoint_move BEGIN SELECT RAISE(ABORT, 'rows of checkpoint_move are evidence and stay'); END;
CREATE TRIGGER keep_checkpoint_move_update BEFORE UPDATE ON checkpoint_move BEGIN SELECT RAISE(ABORT, 'rows of checkpoint_move are evidence and stay'); END;
CREATE TRIGGER keep_verdict_delete BEFORE DELETE ON verdict BEGIN SELECT RAISE(ABORT, 'rows of verdict are evidence and stay'); END;
CREATE TRIGGER keep_verdict_update BEFORE UPDATE ON verdict BEGIN SELECT RAISE(ABORT, 'rows of verdict are evidence and stay'); END;
INSERT INTO "alembic_version" VALUES('0001');
INSERT INTO "lake_head" VALUES(1,0,0,0)
