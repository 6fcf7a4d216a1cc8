CREATE TABLE alembic_version (
	version_num TEXT NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
) STRICT;
CREATE TABLE api_key (
	id TEXT NOT NULL,
	sha256 TEXT NOT NULL,
	tenant TEXT NOT NULL,
	role TEXT NOT NULL,
	note TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	revoked_at INTEGER,
	expires_at INTEGER,
	CONSTRAINT pk_api_key PRIMARY KEY (id),
	CONSTRAINT uq_api_key_sha256 UNIQUE (sha256)
) STRICT;
CREATE TABLE approval (
	tenant TEXT NOT NULL,
	channel TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	actor TEXT NOT NULL,
	reason TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_approval PRIMARY KEY (tenant, channel, checkpoint, actor)
) STRICT;
CREATE TABLE attempt_output (
	tenant TEXT NOT NULL,
	digest TEXT NOT NULL,
	text TEXT NOT NULL,
	recorded_at INTEGER NOT NULL,
	CONSTRAINT pk_attempt_output PRIMARY KEY (tenant, digest)
) STRICT;
CREATE TABLE audit_entry (
	tenant TEXT NOT NULL,
	number INTEGER NOT NULL,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	subject TEXT NOT NULL,
	facts TEXT NOT NULL,
	at INTEGER NOT NULL,
	previous_hash TEXT NOT NULL,
	hash TEXT NOT NULL,
	CONSTRAINT pk_audit_entry PRIMARY KEY (tenant, number)
) STRICT;
CREATE TABLE benchmark_attempt (
	tenant TEXT NOT NULL,
	suite TEXT NOT NULL,
	suite_version TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	task TEXT NOT NULL,
	attempt INTEGER NOT NULL,
	run TEXT NOT NULL,
	status TEXT NOT NULL,
	score REAL,
	error TEXT,
	completion_tokens INTEGER,
	prompt_tokens INTEGER,
	cost_usd REAL,
	latency_s REAL,
	steps INTEGER,
	tool_calls INTEGER,
	invalid_tool_calls INTEGER,
	edited INTEGER,
	asked INTEGER,
	bits_per_byte REAL,
	retries INTEGER NOT NULL,
	scored_at INTEGER NOT NULL,
	trial TEXT,
	audit TEXT,
	CONSTRAINT pk_benchmark_attempt PRIMARY KEY (tenant, suite, suite_version, checkpoint, task, attempt)
) STRICT;
CREATE TABLE benchmark_journal (
	tenant TEXT NOT NULL,
	suite TEXT NOT NULL,
	suite_version TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	number INTEGER NOT NULL,
	kind TEXT NOT NULL,
	document TEXT NOT NULL,
	at INTEGER NOT NULL,
	previous_hash TEXT NOT NULL,
	hash TEXT NOT NULL,
	CONSTRAINT pk_benchmark_journal PRIMARY KEY (tenant, suite, suite_version, checkpoint, number)
) STRICT;
CREATE TABLE benchmark_run (
	id TEXT NOT NULL,
	tenant TEXT NOT NULL,
	suite TEXT NOT NULL,
	suite_version TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	kind TEXT NOT NULL,
	source TEXT NOT NULL,
	conditions TEXT,
	problems TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	finished_at INTEGER,
	CONSTRAINT pk_benchmark_run PRIMARY KEY (id)
) STRICT;
CREATE TABLE chain_head (
	entries TEXT NOT NULL,
	tenant TEXT NOT NULL,
	place TEXT NOT NULL,
	number INTEGER NOT NULL,
	at INTEGER NOT NULL,
	cut_number INTEGER NOT NULL,
	hash TEXT NOT NULL,
	cut_hash TEXT NOT NULL,
	signature TEXT,
	CONSTRAINT pk_chain_head PRIMARY KEY (entries, tenant, place)
) STRICT;
CREATE TABLE channel_change (
	tenant TEXT NOT NULL,
	channel TEXT NOT NULL,
	version INTEGER NOT NULL,
	action TEXT NOT NULL,
	checkpoint TEXT,
	digest TEXT,
	previous TEXT,
	canary TEXT,
	canary_share REAL,
	checkpoint_version INTEGER,
	canary_version INTEGER,
	pinned INTEGER NOT NULL,
	policy TEXT,
	verdict TEXT,
	overridden INTEGER NOT NULL,
	actor TEXT NOT NULL,
	reason TEXT NOT NULL,
	at INTEGER NOT NULL,
	previous_hash TEXT NOT NULL,
	hash TEXT NOT NULL,
	CONSTRAINT pk_channel_change PRIMARY KEY (tenant, channel, version)
) STRICT;
CREATE TABLE checkpoint (
	tenant TEXT NOT NULL,
	name TEXT NOT NULL,
	digest TEXT NOT NULL,
	uri TEXT NOT NULL,
	form TEXT NOT NULL,
	parent TEXT,
	state TEXT NOT NULL,
	checked TEXT NOT NULL,
	bytes INTEGER,
	note TEXT NOT NULL,
	registered_by TEXT NOT NULL,
	registered_at INTEGER NOT NULL,
	CONSTRAINT pk_checkpoint PRIMARY KEY (tenant, name),
	CONSTRAINT uq_checkpoint_tenant UNIQUE (tenant, digest)
) STRICT;
CREATE TABLE checkpoint_move (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	from_state TEXT,
	to_state TEXT NOT NULL,
	actor TEXT NOT NULL,
	reason TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_checkpoint_move PRIMARY KEY (id)
) STRICT;
CREATE TABLE checkpoint_shard (
	tenant TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	shard TEXT NOT NULL,
	CONSTRAINT pk_checkpoint_shard PRIMARY KEY (tenant, checkpoint, shard)
) STRICT;
CREATE TABLE consent_change (
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	added_snap INTEGER NOT NULL,
	consent TEXT NOT NULL,
	CONSTRAINT pk_consent_change PRIMARY KEY (tenant, session_id, added_snap)
) STRICT;
CREATE TABLE consent_decision (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	kind TEXT NOT NULL,
	subject TEXT NOT NULL,
	consent TEXT NOT NULL,
	reason TEXT NOT NULL,
	decided_by TEXT NOT NULL,
	decided_at INTEGER NOT NULL,
	CONSTRAINT pk_consent_decision PRIMARY KEY (id)
) STRICT;
CREATE TABLE console_session (
	token_sha256 TEXT NOT NULL,
	tenant TEXT NOT NULL,
	key_id TEXT NOT NULL,
	person TEXT,
	created_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL,
	CONSTRAINT pk_console_session PRIMARY KEY (token_sha256)
) STRICT;
CREATE TABLE delivery (
	target TEXT NOT NULL,
	tenant TEXT NOT NULL,
	channel TEXT NOT NULL,
	next_version INTEGER NOT NULL,
	attempts INTEGER NOT NULL,
	try_at INTEGER NOT NULL,
	problem TEXT,
	CONSTRAINT pk_delivery PRIMARY KEY (target, tenant, channel)
) STRICT;
CREATE TABLE erasure (
	id TEXT NOT NULL,
	tenant TEXT NOT NULL,
	kind TEXT NOT NULL,
	value TEXT NOT NULL,
	digest TEXT NOT NULL,
	reason TEXT NOT NULL,
	requested_by TEXT NOT NULL,
	until_us INTEGER NOT NULL,
	state TEXT NOT NULL,
	progress TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	finished_at INTEGER,
	report TEXT,
	CONSTRAINT pk_erasure PRIMARY KEY (id)
) STRICT;
CREATE TABLE erasure_session (
	erasure TEXT NOT NULL,
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	named_us INTEGER,
	CONSTRAINT pk_erasure_session PRIMARY KEY (erasure, tenant, session_id)
) STRICT;
CREATE TABLE follow_up_label (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	turn INTEGER NOT NULL,
	message TEXT NOT NULL,
	label TEXT,
	drawn INTEGER NOT NULL,
	again INTEGER NOT NULL,
	until_us INTEGER NOT NULL,
	"by" TEXT NOT NULL,
	is_model INTEGER NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_follow_up_label PRIMARY KEY (id)
) STRICT;
CREATE TABLE gate_policy (
	tenant TEXT NOT NULL,
	digest TEXT NOT NULL,
	text TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_gate_policy PRIMARY KEY (tenant, digest)
) STRICT;
CREATE TABLE iceberg_namespace_properties (
	catalog_name TEXT NOT NULL,
	namespace TEXT NOT NULL,
	property_key TEXT NOT NULL,
	property_value TEXT NOT NULL,
	CONSTRAINT pk_iceberg_namespace_properties PRIMARY KEY (catalog_name, namespace, property_key)
) STRICT;
CREATE TABLE iceberg_publication (
	tenant TEXT NOT NULL,
	snap INTEGER NOT NULL,
	files INTEGER NOT NULL,
	rows INTEGER NOT NULL,
	published_at INTEGER NOT NULL,
	CONSTRAINT pk_iceberg_publication PRIMARY KEY (tenant)
) STRICT;
CREATE TABLE iceberg_tables (
	catalog_name TEXT NOT NULL,
	table_namespace TEXT NOT NULL,
	table_name TEXT NOT NULL,
	metadata_location TEXT,
	previous_metadata_location TEXT,
	iceberg_type TEXT,
	CONSTRAINT pk_iceberg_tables PRIMARY KEY (catalog_name, table_namespace, table_name)
) STRICT;
CREATE TABLE imported_source (
	tenant TEXT NOT NULL,
	digest TEXT NOT NULL,
	path TEXT NOT NULL,
	format TEXT NOT NULL,
	mark TEXT NOT NULL,
	imported_at INTEGER NOT NULL,
	reading BLOB,
	CONSTRAINT pk_imported_source PRIMARY KEY (tenant, digest)
) STRICT;
CREATE TABLE judge_answer (
	"key" TEXT NOT NULL,
	answer TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	tenant TEXT,
	session_id TEXT,
	CONSTRAINT pk_judge_answer PRIMARY KEY ("key")
) STRICT;
CREATE TABLE judge_spending (
	run TEXT NOT NULL,
	requests INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	CONSTRAINT pk_judge_spending PRIMARY KEY (run)
) STRICT;
CREATE TABLE lake_commit (
	snap INTEGER NOT NULL,
	kind TEXT NOT NULL,
	committed_at INTEGER NOT NULL,
	waited_us INTEGER,
	CONSTRAINT pk_lake_commit PRIMARY KEY (snap)
) STRICT;
CREATE TABLE lake_head (
	id INTEGER NOT NULL,
	snap INTEGER NOT NULL,
	committed_at INTEGER NOT NULL,
	readable_from INTEGER NOT NULL,
	CONSTRAINT pk_lake_head PRIMARY KEY (id)
) STRICT;
CREATE TABLE lease (
	name TEXT NOT NULL,
	owner TEXT,
	epoch INTEGER NOT NULL,
	until INTEGER NOT NULL,
	CONSTRAINT pk_lease PRIMARY KEY (name)
) STRICT;
CREATE TABLE ledger (
	tenant TEXT NOT NULL,
	source TEXT NOT NULL,
	hour INTEGER NOT NULL,
	partition INTEGER NOT NULL,
	accepted INTEGER NOT NULL,
	stored INTEGER NOT NULL,
	duplicate INTEGER NOT NULL,
	rejected INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	erased INTEGER NOT NULL,
	dropped INTEGER NOT NULL,
	CONSTRAINT pk_ledger PRIMARY KEY (tenant, source, hour, partition)
) STRICT;
CREATE TABLE live_look (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	channel TEXT NOT NULL,
	since_version INTEGER NOT NULL,
	candidate TEXT NOT NULL,
	incumbent TEXT NOT NULL,
	document TEXT NOT NULL,
	at INTEGER NOT NULL,
	CONSTRAINT pk_live_look PRIMARY KEY (id)
) STRICT;
CREATE TABLE log_gap (
	id INTEGER NOT NULL,
	partition INTEGER NOT NULL,
	log_id TEXT NOT NULL,
	from_offset INTEGER NOT NULL,
	to_offset INTEGER NOT NULL,
	found_at INTEGER NOT NULL,
	reason TEXT NOT NULL,
	accepted_at INTEGER,
	accepted_why TEXT,
	CONSTRAINT pk_log_gap PRIMARY KEY (id)
) STRICT;
CREATE TABLE log_partition (
	partition INTEGER NOT NULL,
	log_id TEXT NOT NULL,
	next_offset INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	lease_until INTEGER NOT NULL,
	owner TEXT,
	CONSTRAINT pk_log_partition PRIMARY KEY (partition)
) STRICT;
CREATE TABLE log_shape (
	log_id TEXT NOT NULL,
	partitions INTEGER NOT NULL,
	CONSTRAINT pk_log_shape PRIMARY KEY (log_id)
) STRICT;
CREATE TABLE loop_cycle (
	tenant TEXT NOT NULL,
	loop TEXT NOT NULL,
	number INTEGER NOT NULL,
	channel TEXT NOT NULL,
	file_digest TEXT NOT NULL,
	budget_s INTEGER NOT NULL,
	parent TEXT,
	checkpoint TEXT,
	outcome TEXT,
	why TEXT NOT NULL,
	opened_at INTEGER NOT NULL,
	began_at INTEGER,
	ended_at INTEGER,
	CONSTRAINT pk_loop_cycle PRIMARY KEY (tenant, loop, number)
) STRICT;
CREATE TABLE loop_stage (
	tenant TEXT NOT NULL,
	loop TEXT NOT NULL,
	cycle INTEGER NOT NULL,
	stage TEXT NOT NULL,
	position INTEGER NOT NULL,
	state TEXT NOT NULL,
	epoch INTEGER NOT NULL,
	owner TEXT,
	lease_until INTEGER NOT NULL,
	failures INTEGER NOT NULL,
	not_before INTEGER NOT NULL,
	why TEXT NOT NULL,
	inputs TEXT,
	inputs_digest TEXT,
	result TEXT,
	started_at INTEGER,
	tried_at INTEGER,
	ended_at INTEGER,
	CONSTRAINT pk_loop_stage PRIMARY KEY (tenant, loop, cycle, stage)
) STRICT;
CREATE TABLE masked_session (
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	since_us INTEGER NOT NULL,
	CONSTRAINT pk_masked_session PRIMARY KEY (tenant, session_id)
) STRICT;
CREATE TABLE mined_task (
	tenant TEXT NOT NULL,
	suite TEXT NOT NULL,
	task TEXT NOT NULL,
	state TEXT NOT NULL,
	why TEXT NOT NULL,
	session_id TEXT,
	prompt TEXT NOT NULL,
	facts TEXT NOT NULL,
	"by" TEXT,
	changed_at INTEGER NOT NULL,
	CONSTRAINT pk_mined_task PRIMARY KEY (tenant, suite, task)
) STRICT;
CREATE TABLE reader_lease (
	id TEXT NOT NULL,
	snap INTEGER NOT NULL,
	until INTEGER NOT NULL,
	CONSTRAINT pk_reader_lease PRIMARY KEY (id)
) STRICT;
CREATE TABLE redaction_count (
	tenant TEXT NOT NULL,
	source TEXT NOT NULL,
	hour INTEGER NOT NULL,
	rule TEXT NOT NULL,
	matches INTEGER NOT NULL,
	CONSTRAINT pk_redaction_count PRIMARY KEY (tenant, source, hour, rule)
) STRICT;
CREATE TABLE rejected (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	source TEXT NOT NULL,
	received_at INTEGER NOT NULL,
	line INTEGER NOT NULL,
	reason TEXT NOT NULL,
	truncated INTEGER NOT NULL,
	replayed_at INTEGER,
	kind TEXT NOT NULL,
	lines INTEGER NOT NULL,
	acknowledged INTEGER NOT NULL,
	file TEXT NOT NULL,
	start INTEGER NOT NULL,
	length INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	CONSTRAINT pk_rejected PRIMARY KEY (id)
) STRICT;
CREATE TABLE rejection_fuse (
	tenant TEXT NOT NULL,
	source TEXT NOT NULL,
	tripped_at INTEGER NOT NULL,
	rejected INTEGER NOT NULL,
	seen INTEGER NOT NULL,
	reason TEXT NOT NULL,
	CONSTRAINT pk_rejection_fuse PRIMARY KEY (tenant, source)
) STRICT;
CREATE TABLE replica (
	tenant TEXT NOT NULL,
	channel TEXT NOT NULL,
	replica TEXT NOT NULL,
	part TEXT NOT NULL,
	state TEXT NOT NULL,
	wanted TEXT,
	version INTEGER NOT NULL,
	loaded TEXT,
	digest TEXT,
	problem TEXT,
	sidecar TEXT NOT NULL,
	loaded_at INTEGER,
	since INTEGER NOT NULL,
	heard_at INTEGER NOT NULL,
	CONSTRAINT pk_replica PRIMARY KEY (tenant, channel, replica)
) STRICT;
CREATE TABLE retention_rule (
	tenant TEXT NOT NULL,
	kind TEXT NOT NULL,
	age_s INTEGER,
	breaks_snapshots INTEGER NOT NULL,
	set_by TEXT NOT NULL,
	set_at INTEGER NOT NULL,
	CONSTRAINT pk_retention_rule PRIMARY KEY (tenant, kind)
) STRICT;
CREATE TABLE retention_run (
	tenant TEXT NOT NULL,
	kind TEXT NOT NULL,
	ended_at INTEGER NOT NULL,
	report TEXT NOT NULL,
	CONSTRAINT pk_retention_run PRIMARY KEY (tenant, kind)
) STRICT;
CREATE TABLE reward_definition (
	version TEXT NOT NULL,
	name TEXT NOT NULL,
	text TEXT NOT NULL,
	listed INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	through_snap INTEGER NOT NULL,
	run_at INTEGER NOT NULL,
	through_decision INTEGER DEFAULT '0' NOT NULL,
	CONSTRAINT pk_reward_definition PRIMARY KEY (version)
) STRICT;
CREATE TABLE reward_due (
	definition_version TEXT NOT NULL,
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	due_at INTEGER NOT NULL,
	computed_at INTEGER NOT NULL,
	CONSTRAINT pk_reward_due PRIMARY KEY (definition_version, tenant, session_id)
) STRICT;
CREATE TABLE reward_file (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	definition_version TEXT NOT NULL,
	rows INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	sessions INTEGER NOT NULL,
	sessions_bytes INTEGER NOT NULL,
	sessions_sha256 TEXT NOT NULL,
	lake_snap INTEGER NOT NULL,
	added_snap INTEGER NOT NULL,
	removed_snap INTEGER,
	tenant TEXT NOT NULL,
	CONSTRAINT pk_reward_file PRIMARY KEY (id),
	CONSTRAINT uq_reward_file_name UNIQUE (name)
) STRICT;
CREATE TABLE segment (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	kind TEXT NOT NULL,
	tenant TEXT NOT NULL,
	log_id TEXT,
	from_offset INTEGER,
	to_offset INTEGER,
	partition INTEGER NOT NULL,
	log_partitions INTEGER NOT NULL,
	schema_version INTEGER NOT NULL,
	rows INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	sessions_bytes INTEGER NOT NULL,
	ts_min INTEGER NOT NULL,
	ts_max INTEGER NOT NULL,
	added_snap INTEGER NOT NULL,
	sha256 TEXT NOT NULL,
	sessions_sha256 TEXT NOT NULL,
	session_filter BLOB NOT NULL,
	removed_snap INTEGER,
	changed_snap INTEGER,
	CONSTRAINT pk_segment PRIMARY KEY (id),
	CONSTRAINT uq_segment_name UNIQUE (name)
) STRICT;
CREATE TABLE segment_intent (
	name TEXT NOT NULL,
	partition INTEGER NOT NULL,
	epoch INTEGER,
	owner TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	claimed_at INTEGER,
	CONSTRAINT pk_segment_intent PRIMARY KEY (name)
) STRICT;
CREATE TABLE session_link (
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	parent_session TEXT NOT NULL,
	link TEXT NOT NULL,
	CONSTRAINT pk_session_link PRIMARY KEY (tenant, session_id)
) STRICT;
CREATE TABLE shard (
	id TEXT NOT NULL,
	tenant TEXT NOT NULL,
	name TEXT NOT NULL,
	snap INTEGER NOT NULL,
	snapshot TEXT NOT NULL,
	samples INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	trainable INTEGER NOT NULL,
	bytes INTEGER NOT NULL,
	session_filter BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	added_snap INTEGER NOT NULL,
	gone TEXT,
	gone_at INTEGER,
	gone_why TEXT,
	record TEXT NOT NULL,
	CONSTRAINT pk_shard PRIMARY KEY (id, tenant)
) STRICT;
CREATE TABLE shard_file (
	name TEXT NOT NULL,
	shard TEXT NOT NULL,
	tenant TEXT NOT NULL,
	CONSTRAINT pk_shard_file PRIMARY KEY (name)
) STRICT;
CREATE TABLE shard_left_out (
	shard TEXT NOT NULL,
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	reason TEXT NOT NULL,
	CONSTRAINT pk_shard_left_out PRIMARY KEY (shard, tenant, session_id, reason)
) STRICT;
CREATE TABLE shard_mark (
	shard TEXT NOT NULL,
	tenant TEXT NOT NULL,
	session_id TEXT NOT NULL,
	reason TEXT NOT NULL,
	marked_at INTEGER NOT NULL,
	CONSTRAINT pk_shard_mark PRIMARY KEY (shard, tenant, session_id, reason)
) STRICT;
CREATE TABLE snapshot (
	name TEXT NOT NULL,
	snap INTEGER NOT NULL,
	note TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_snapshot PRIMARY KEY (name)
) STRICT;
CREATE TABLE suite_version (
	tenant TEXT NOT NULL,
	suite TEXT NOT NULL,
	version TEXT NOT NULL,
	tasks TEXT NOT NULL,
	content TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	CONSTRAINT pk_suite_version PRIMARY KEY (tenant, suite, version)
) STRICT;
CREATE TABLE tenant_offset (
	partition INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	next_offset INTEGER NOT NULL,
	CONSTRAINT pk_tenant_offset PRIMARY KEY (partition, tenant)
) STRICT;
CREATE TABLE tenant_quota (
	tenant TEXT NOT NULL,
	name TEXT NOT NULL,
	maximum INTEGER NOT NULL,
	CONSTRAINT pk_tenant_quota PRIMARY KEY (tenant, name)
) STRICT;
CREATE TABLE tenant_redaction (
	tenant TEXT NOT NULL,
	secrets TEXT,
	personal TEXT,
	set_by TEXT NOT NULL,
	set_at INTEGER NOT NULL,
	CONSTRAINT pk_tenant_redaction PRIMARY KEY (tenant)
) STRICT;
CREATE TABLE tombstone (
	id INTEGER NOT NULL,
	tenant TEXT NOT NULL,
	kind TEXT NOT NULL,
	digest TEXT NOT NULL,
	until_us INTEGER,
	erasure TEXT NOT NULL,
	CONSTRAINT pk_tombstone PRIMARY KEY (id),
	CONSTRAINT uq_tombstone_tenant UNIQUE (tenant, kind, digest, erasure)
) STRICT;
CREATE TABLE verdict (
	tenant TEXT NOT NULL,
	id TEXT NOT NULL,
	channel TEXT NOT NULL,
	checkpoint TEXT NOT NULL,
	document TEXT NOT NULL,
	made_at INTEGER NOT NULL,
	CONSTRAINT pk_verdict PRIMARY KEY (tenant, id)
) STRICT;
CREATE TABLE webhook (
	id TEXT NOT NULL,
	tenant TEXT NOT NULL,
	channel TEXT,
	url TEXT NOT NULL,
	secret TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	removed_at INTEGER,
	CONSTRAINT pk_webhook PRIMARY KEY (id)
) STRICT;
CREATE TABLE writer (
	owner TEXT NOT NULL,
	until INTEGER NOT NULL,
	CONSTRAINT pk_writer PRIMARY KEY (owner)
) STRICT;
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
