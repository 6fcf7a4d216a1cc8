/** What secrets look like. `make docs` writes this file from the rules of redaction of the
 * service; platform/penstock/events/redaction/rules.toml says what they mean. */

export interface Rule {
  readonly type: string;
  readonly pattern: RegExp;
  readonly checks: readonly string[];
  /** One of them, in small letters, is in each text that the pattern matches. */
  readonly needles: readonly string[];
}

export const RULES: readonly Rule[] = [
  {
    type: "discord_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:(?<=/api/webhooks/)[0-9]{17,20}/[A-Za-z0-9_-]{60,80})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["/api/webhooks/"],
  },
  {
    type: "aws_key",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:AKIA[A-Z0-9]{16}|ASIA[A-Z0-9]{16}|ABIA[A-Z0-9]{16}|ACCA[A-Z0-9]{16})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["akia", "asia", "abia", "acca"],
  },
  {
    type: "github_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:ghp_[A-Za-z0-9]{36,255}|gho_[A-Za-z0-9]{36,255}|ghu_[A-Za-z0-9]{36,255}|ghs_[A-Za-z0-9]{36,255}|ghr_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{82})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
  },
  {
    type: "gitlab_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:glpat\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|gldt\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glrt\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glptt\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glcbt\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glsoat\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glft\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glimt\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?|glagent\\-[A-Za-z0-9_-]{20,64}(?:\\.[A-Za-z0-9]{2}\\.[A-Za-z0-9]{9})?)(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-", "glft-", "glimt-", "glagent-"],
  },
  {
    type: "slack_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:xoxa\\-[A-Za-z0-9-]{16,200}|xoxb\\-[A-Za-z0-9-]{16,200}|xoxe\\-[A-Za-z0-9-]{16,200}|xoxp\\-[A-Za-z0-9-]{16,200}|xoxo\\-[A-Za-z0-9-]{16,200}|xoxs\\-[A-Za-z0-9-]{16,200}|xoxr\\-[A-Za-z0-9-]{16,200}|xapp\\-[A-Za-z0-9-]{16,200}|(?<=/IncomingWebhook/)[0-9a-f]{32}|(?<=hooks\\.slack\\.com/services/)[A-Za-z0-9/]{32,64}|(?<=hooks\\.slack\\.com/triggers/)[A-Za-z0-9/]{32,64}|(?<=hooks\\.slack\\.com/workflows/)[A-Za-z0-9/]{32,64})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxo-", "xoxs-", "xoxr-", "xapp-", "/incomingwebhook/", "hooks.slack.com/services/", "hooks.slack.com/triggers/", "hooks.slack.com/workflows/"],
  },
  {
    type: "api_key",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:sk\\-ant\\-[A-Za-z0-9_-]{24,220}|sk\\-or\\-[A-Za-z0-9_-]{24,220}|sk\\-proj\\-[A-Za-z0-9_-]{24,220}|sk\\-svcacct\\-[A-Za-z0-9_-]{24,220}|sk\\-admin\\-[A-Za-z0-9_-]{24,220}|sk\\-lf\\-[A-Za-z0-9_-]{24,220}|sk\\-None\\-[A-Za-z0-9_-]{24,220}|sk\\-[A-Za-z0-9]{32,64}|gsk_[A-Za-z0-9]{48,56}|xai\\-[A-Za-z0-9]{60,90}|r8_[A-Za-z0-9]{37}|hf_[A-Za-z0-9]{34}|pplx\\-[A-Za-z0-9]{40,56}|nvapi\\-[A-Za-z0-9_-]{60,72}|fw_[A-Za-z0-9]{22,26}|tgp_v1_[A-Za-z0-9_-]{40,48}|pcsk_[A-Za-z0-9_]{40,80}|lsv2_pt_[A-Za-z0-9_]{40,80}|lsv2_sk_[A-Za-z0-9_]{40,80}|tvly\\-[A-Za-z0-9-]{30,50}|jina_[A-Za-z0-9_-]{50,70}|rpa_[A-Za-z0-9]{40,50}|e2b_[0-9a-f]{40})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["sk-ant-", "sk-or-", "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-lf-", "sk-none-", "sk-", "gsk_", "xai-", "r8_", "hf_", "pplx-", "nvapi-", "fw_", "tgp_v1_", "pcsk_", "lsv2_pt_", "lsv2_sk_", "tvly-", "jina_", "rpa_", "e2b_"],
  },
  {
    type: "google_key",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:AIza[A-Za-z0-9_-]{35}|GOCSPX\\-[A-Za-z0-9_-]{28}|ya29\\.[A-Za-z0-9_-]{30,250})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["aiza", "gocspx-", "ya29."],
  },
  {
    type: "payment_key",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:sk_live_[A-Za-z0-9]{16,128}|sk_test_[A-Za-z0-9]{16,128}|rk_live_[A-Za-z0-9]{16,128}|rk_test_[A-Za-z0-9]{16,128}|whsec_[A-Za-z0-9+/]{32,64}|EAAA[A-Za-z0-9_-]{60}|sq0csp\\-[A-Za-z0-9_-]{43}|sq0atp\\-[A-Za-z0-9_-]{22}|FLWSECK\\-[A-Za-z0-9-]{30,50}|FLWSECK_TEST\\-[A-Za-z0-9-]{30,50}|access_token\\$production\\$[0-9a-z$]{40,60}|access_token\\$sandbox\\$[0-9a-z$]{40,60}|shippo_live_[0-9a-f]{40}|shippo_test_[0-9a-f]{40})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", "eaaa", "sq0csp-", "sq0atp-", "flwseck-", "flwseck_test-", "access_token$production$", "access_token$sandbox$", "shippo_live_", "shippo_test_"],
  },
  {
    type: "package_registry_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:npm_[A-Za-z0-9]{36}|pypi\\-AgE[A-Za-z0-9_-]{50,255}|dckr_pat_[A-Za-z0-9_-]{27,32}|dckr_oat_[A-Za-z0-9_-]{27,32}|rubygems_[0-9a-f]{48}|(?<=_authToken=)[A-Za-z0-9_.-]{20,200}|CLOJARS_[a-z0-9]{60}|AKCp[A-Za-z0-9]{60,75}|cmVmdGtuOj[A-Za-z0-9]{40,60})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["npm_", "pypi-age", "dckr_pat_", "dckr_oat_", "rubygems_", "_authtoken=", "clojars_", "akcp", "cmvmdgtuoj"],
  },
  {
    type: "platform_token",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:dop_v1_[0-9a-f]{64}|doo_v1_[0-9a-f]{64}|dor_v1_[0-9a-f]{64}|shpat_[0-9a-fA-F]{32}|shpca_[0-9a-fA-F]{32}|shppa_[0-9a-fA-F]{32}|shpss_[0-9a-fA-F]{32}|lin_api_[A-Za-z0-9]{40,64}|lin_oauth_[A-Za-z0-9]{40,64}|dapi[0-9a-f]{32}|hvs\\.[A-Za-z0-9_-]{24,200}|hvb\\.[A-Za-z0-9_-]{24,200}|hvr\\.[A-Za-z0-9_-]{24,200}|dp\\.pt\\.[A-Za-z0-9_.-]{40,84}|dp\\.st\\.[A-Za-z0-9_.-]{40,84}|dp\\.ct\\.[A-Za-z0-9_.-]{40,84}|dp\\.sa\\.[A-Za-z0-9_.-]{40,84}|sbp_[0-9a-f]{40}|PMAK\\-[0-9a-f-]{59}|sntrys_[A-Za-z0-9_=+/-]{40,300}|sntryu_[A-Za-z0-9_=+/-]{40,300}|figd_[A-Za-z0-9_-]{38,44}|ATATT3[A-Za-z0-9_=-]{28,220}|ATCTT3[A-Za-z0-9_=-]{28,220}|ATBB[A-Za-z0-9_=-]{28,220}|ntn_[A-Za-z0-9]{40,50}|secret_[A-Za-z0-9]{40,50}|fm2_[A-Za-z0-9+/=_-]{40,1000}|fo1_[A-Za-z0-9+/=_-]{40,1000}|AGE\\-SECRET\\-KEY\\-1[0-9A-Z]{58}|NRAK\\-[A-Z0-9]{27}|glsa_[A-Za-z0-9_]{41}|glc_[A-Za-z0-9+/=]{40,400}|pscale_tkn_[A-Za-z0-9_.-]{32,64}|pscale_pw_[A-Za-z0-9_.-]{32,64}|pscale_oauth_[A-Za-z0-9_.-]{32,64}|phx_[A-Za-z0-9]{40,60}|tskey\\-[A-Za-z0-9-]{35,70}|pul\\-[0-9a-f]{40}|vercel_blob_rw_[A-Za-z0-9_]{40,60}|nfp_[A-Za-z0-9]{36,40}|rnd_[A-Za-z0-9]{28,36}|HRKU\\-[A-Za-z0-9_-]{36,64}|sgp_[A-Za-z0-9_]{40,60}|squ_[0-9a-f]{40}|sqp_[0-9a-f]{40}|sqa_[0-9a-f]{40}|CFPAT\\-[A-Za-z0-9_-]{43}|cfut_[A-Za-z0-9]{40,60}|cfat_[A-Za-z0-9]{40,60}|xkeysib\\-[0-9a-zA-Z-]{70,90}|ops_eyJ[A-Za-z0-9+/_-]{200,1000}|EZAK[A-Za-z0-9]{54}|EZTK[A-Za-z0-9]{54}|dt0c01\\.[A-Z0-9.]{80,100}|v1\\.0\\-[0-9a-f-]{140,180})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["dop_v1_", "doo_v1_", "dor_v1_", "shpat_", "shpca_", "shppa_", "shpss_", "lin_api_", "lin_oauth_", "dapi", "hvs.", "hvb.", "hvr.", "dp.pt.", "dp.st.", "dp.ct.", "dp.sa.", "sbp_", "pmak-", "sntrys_", "sntryu_", "figd_", "atatt3", "atctt3", "atbb", "ntn_", "secret_", "fm2_", "fo1_", "age-secret-key-1", "nrak-", "glsa_", "glc_", "pscale_tkn_", "pscale_pw_", "pscale_oauth_", "phx_", "tskey-", "pul-", "vercel_blob_rw_", "nfp_", "rnd_", "hrku-", "sgp_", "squ_", "sqp_", "sqa_", "cfpat-", "cfut_", "cfat_", "xkeysib-", "ops_eyj", "ezak", "eztk", "dt0c01.", "v1.0-"],
  },
  {
    type: "azure_key",
    pattern: new RegExp("(?<![A-Za-z0-9])(?:(?<=AccountKey=)[A-Za-z0-9+/=]{40,90}|(?<=SharedAccessKey=)[A-Za-z0-9+/=]{40,90}|(?<=\\?sig=)[A-Za-z0-9%+/=]{40,90}|(?<=\\&sig=)[A-Za-z0-9%+/=]{40,90}|(?<=X\\-Amz\\-Signature=)[0-9a-f]{64})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: ["accountkey=", "sharedaccesskey=", "?sig=", "&sig=", "x-amz-signature="],
  },
  {
    type: "service_token",
    pattern: new RegExp("(?:(?<![A-Za-z0-9])|(?<=/bot))(?:[MNO][A-Za-z0-9_-]{23,27}\\.[A-Za-z0-9_-]{6}\\.[A-Za-z0-9_-]{27,40}|SG\\.[A-Za-z0-9_-]{22}\\.[A-Za-z0-9_-]{43}|pat[A-Za-z0-9]{14}\\.[0-9a-f]{64}|key-[0-9a-f]{32}|SK[0-9a-f]{32}|[0-9a-f]{32}-us[0-9]{1,2}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}|(?<=/bot)[0-9]{8,10}:[A-Za-z0-9_-]{35}|[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34})(?![A-Za-z0-9])", "gs"),
    checks: ["no_example"],
    needles: [".", "sg.", "key-", "sk", "-us", ":aa", "/bot", "pat", "q~"],
  },
  {
    type: "private_key",
    pattern: new RegExp("(?:-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:(?:(?!-----).){16,20000}?-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?:[\\s\\\\nr\"',+>-]{1,16}[A-Za-z0-9+/]{20,80}={0,2}){1,400}(?:[\\s\\\\nr\"',+>-]{1,16}[A-Za-z0-9+/]{1,60}={1,2})?)|(?:(?<=\\n[+>-])|(?<=^[+>-])|(?<![A-Za-z0-9+/=\\\\]))(?<![A-Za-z0-9+/]{20}\\n)(?<![A-Za-z0-9+/]{20}\\r\\n)(?<![A-Za-z0-9+/]{20}\\n[+> \\t-])(?<![A-Za-z0-9+/]{20}\\n[ ]{2})(?<![A-Za-z0-9+/]{20}\\n[ ]{4})(?<![A-Za-z0-9+/]{20}\\n[ ]{8})(?!\\+)(?:(?=(?<atom0>[A-Za-z0-9+/]{20,4000}))\\k<atom0>={0,2}(?=(?<atom1>[\"',]{0,2}))\\k<atom1>(?=(?<atom2>[ \\t]{0,8}))\\k<atom2>(?:(?:(?=(?<atom3>[\\\\]{1,8}))\\k<atom3>r)?(?=(?<atom4>[\\\\]{1,8}))\\k<atom4>n|\\r?\\n)(?=(?<atom5>[ \\t\"']{0,16}))\\k<atom5>(?=(?<atom6>[+>-]{0,1}))\\k<atom6>){1,110}(?:(?=(?<atom7>[A-Za-z0-9+/]{1,60}))\\k<atom7>={0,2}(?=(?<atom8>[\"',]{0,2}))\\k<atom8>(?=(?<atom9>[ \\t]{0,8}))\\k<atom9>(?:(?:(?=(?<atom10>[\\\\]{1,8}))\\k<atom10>r)?(?=(?<atom11>[\\\\]{1,8}))\\k<atom11>n|\\r?\\n)(?=(?<atom12>[ \\t\"']{0,16}))\\k<atom12>(?=(?<atom13>[+>-]{0,1}))\\k<atom13>)?-{4,5}END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?<=Private-Lines: )[0-9]{1,3}\\s+[A-Za-z0-9+/=\\s]{40,20000})", "gs"),
    checks: ["key_block"],
    needles: ["private key", "private-lines: "],
  },
  {
    type: "jwt",
    pattern: new RegExp("(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,1000}\\.eyJ[A-Za-z0-9_-]{8,8000}\\.[A-Za-z0-9_-]{16,1000}", "gs"),
    checks: ["jwt"],
    needles: ["eyj"],
  },
  {
    type: "password",
    pattern: new RegExp("[A-Za-z][A-Za-z0-9+.-]{1,30}:\\\\?/\\\\?/[^\\s/:@\"'`\\\\<>]{0,64}:(?<value>[^\\s/@\"'`\\\\<>]{3,128})@(?!sha\\d)[A-Za-z0-9_.\\[-]|(?<![A-Za-z0-9_/@.-])[A-Za-z0-9_.-]{1,64}[:/](?![/])(?=[^\\s@]{0,127}\\d)(?<bare>[^\\s/@\"'`\\\\<>:]{6,128})@(?:(?:tcp|unix)\\(|(?!sha\\d)(?://)?[A-Za-z0-9_.-]{1,100}:\\d{2,5}(?!\\d|:\\d))", "gs"),
    checks: ["no_example", "password"],
    needles: ["@"],
  },
  {
    type: "token",
    pattern: new RegExp("://(?<value>[A-Za-z0-9_-]{20,200})@[A-Za-z0-9]", "gs"),
    checks: ["no_example", "mixed"],
    needles: ["://"],
  },
  {
    type: "password",
    pattern: new RegExp("(?<![^\\s\"\\x27>+-])(?:[A-Za-z0-9.*-]{1,100}:[0-9]{4,5}:[A-Za-z0-9_*-]{1,64}:[A-Za-z0-9_.*-]{1,64}:(?<value>[^\\s:\"\\\\]{6,200})(?![^\\s\"\\\\])|[a-z_][a-z0-9_-]{0,31}:(?<bare>\\$[0-9a-z]{1,8}\\$[A-Za-z0-9./$=,+-]{20,200}))", "gs"),
    checks: ["no_example", "password"],
    needles: [":$", ":"],
  },
  {
    type: "aws_key",
    pattern: new RegExp("(?:(?:AKIA|ASIA)[A-Z0-9]{16}|(?:QUtJQ|QVNJQ)[A-Za-z0-9+/]{22}={0,2})(?![A-Za-z0-9])[^\\x00]{1,200}?(?<![A-Za-z0-9+/])(?<value>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])", "gs"),
    checks: ["no_example", "mixed"],
    needles: ["akia", "asia", "qutjq", "qvnjq"],
  },
  {
    type: "token",
    pattern: new RegExp("(?<![A-Za-z])(?:bearer|basic|auth[ ](?:plain|login|xoauth2)|authorization[\"': \\\\]{1,8}[a-z]{2,16}) (?<value>[A-Za-z0-9_~+/.-]{12,4000}={0,2})", "gsi"),
    checks: ["no_example", "mixed"],
    needles: ["bearer", "basic", "auth"],
  },
  {
    type: "password",
    pattern: new RegExp("(?<name>(?:password|passwd|passphrase|passcode|passwort|kennwort|pwd|(?<![a-z])(?:wpa_?)?psk)(?=(?<atom0>[A-Za-z0-9_]{0,16}))\\k<atom0>|(?<=[a-z0-9][_-])pass(?![a-z])|(?<![a-z_.-])pass(?=[\\\"']?[ ]?:[ ]?[\\\"'])|(?<![a-z_.-])(?!by|com|sur|over|tres)(?:[a-z]{0,8}pass(?==)|[a-z]{1,8}pass(?=:[ ])))(?:[ \\t]{1,4}(?=[\"'])|(?:</[a-z]{1,10}>\\s{0,16}<[a-z]{1,10}|[ ]?)>(?=[^<>\\s]{6,160}</)|\\((?=[\\\"'])|\\\\{0,3}[\"']?[\\])]?[ \\t]{0,8}(?::[ ]?&?[A-Za-z][A-Za-z0-9_.<>]{0,24}[ ]?=|[|?]{1,2}=|:=|=>|=|:)(?!=)[ \\t]{0,8}(?:[>|][+-]?[ \\t]{0,4}\\r?\\n[ \\t]{1,16})?)(?:\\(?\\s{0,16}(?:[a-z]{0,2})\\\\{0,3}(?<quote>[\"'`])(?<value>(?=(?<atom1>[^\"'`\\n\\\\]{6,160}))\\k<atom1>)\\\\{0,3}\\k<quote>|(?<bare>[a-z]{4}(?:[ ][a-z]{4}){3}|(?:\\{[A-Z0-9]{3,8}\\})?(?=(?<atom2>[^\"'`\\s\\\\,;(){}\\[\\]<>]{6,160}))\\k<atom2>)(?=\\\\n|[\\s,;\"'}\\\\]|</|$))", "gsi"),
    checks: ["no_example", "password", "assigned"],
    needles: ["pass", "pwd", "psk", "kennwort"],
  },
  {
    type: "token",
    pattern: new RegExp("(?<name>(?:secret|token|(?:api|access|auth|private|encryption|signing|secret|account|master|app|service|client|deploy|license|shared|storage|webhook|subscription|consumer|functions|session|hmac)[_-]?key|credentials?|auth)(?=(?<atom0>[A-Za-z0-9_-]{0,16}))\\k<atom0>|(?<=[\"'])d(?=[\"']:[ ]?[\"'][A-Za-z0-9_-]{43}))\\\\{0,3}[\"']?[\\])]?[ \\t]{0,8}(?::[ ]?&?[A-Za-z][A-Za-z0-9_.<>]{0,24}[ ]?=|[|?]{1,2}=|:=|=>|=|:|\\((?=[\\\"']))(?!=)[ \\t]{0,8}(?:\\(?\\s{0,16}(?:[a-z]{0,2})\\\\{0,3}(?<quote>[\"'`])(?<value>(?=(?<atom1>[A-Za-z0-9_~+/.=!@#$^&*:%()\\[\\]|?,;-]{12,512}))\\k<atom1>)\\\\{0,3}\\k<quote>|(?<bare>(?=(?<atom2>[A-Za-z0-9_~+/.=!@#$^*:%-]{16,512}))\\k<atom2>)(?=\\\\n|[\\s,;\"'}&\\\\]|$))", "gsi"),
    checks: ["assigned", "no_example", "token"],
    needles: ["secret", "token", "key", "credential", "auth", "d\"", "d'"],
  },
  {
    type: "token",
    pattern: new RegExp("(?<name>(?:(?<![A-Za-z])(?:PAT|pat)|(?<=[a-z0-9])Pat|(?<![A-Za-z0-9_])(?!(?:[A-Z0-9]+_){0,3}(?:PUBLIC|PUBLISHABLE|CACHE|PRIMARY|FOREIGN|SORT|PARTITION|HASH)_)[A-Z0-9]{2,16}(?:_[A-Z0-9]{1,16}){0,2}_(?:KEYS?|SK|LOGIN|SIGNING|SALT|CREDS|SEED|PEPPER|HMAC|DSN|JWT|COOKIE|SESSION|WEBHOOK|PRIVATE|CREDENTIAL|ACCESS)))\\\\{0,3}[\"']?[\\])]?[ \\t]{0,8}(?::[ ]?&?[A-Za-z][A-Za-z0-9_.<>]{0,24}[ ]?=|[|?]{1,2}=|:=|=>|=|:)(?!=)[ \\t]{0,8}(?:\\(?\\s{0,16}(?:[a-z]{0,2})\\\\{0,3}(?<quote>[\"'`])(?<value>(?=(?<atom0>[A-Za-z0-9_~+/.=!@#$^&*:%-]{12,512}))\\k<atom0>)\\\\{0,3}\\k<quote>|(?<bare>(?=(?<atom1>[A-Za-z0-9_~+/.=!@#$^*:%-]{16,512}))\\k<atom1>)(?=\\\\n|[\\s,;\"'}&\\\\]|$))", "gs"),
    checks: ["assigned", "no_example", "token"],
    needles: ["_", "pat", "_key", "_sk"],
  },
  {
    type: "password",
    pattern: new RegExp("(?:(?:--[a-z-]{0,24}(?:password|passphrase|passwd|pwd|pass|token|secret|(?:account|admin|app|auth|encryption|license|master|shared|storage|api|secret|access)-?key))(?:[ ]|=)(?!id=)|curl [^\\n]{0,200}?(?:-u|--user)[ ][\"']?[A-Za-z0-9_.@-]{1,64}:|sshpass -p[ ]?|(?<![A-Za-z])(?:mysql|mysqldump|mysqladmin|mariadb|7za?)[ ](?:[^\\n]{0,200}?[ ])??-p|(?:(?<!-k )login|mongo[a-z]{0,8}|cypher-shell|cqlsh|rdesktop)[ ](?:[^\\n]{0,200}?[ ])??-p[ ]|redis-cli[ ](?:[^\\n]{0,200}?[ ])??-a[ ]|(?<![A-Za-z])(?:ldap[a-z]{3,8}|sqlcmd|bcp|isql|zip|ipmitool|mosquitto_[ps]ub)[ ](?:[^\\n]{0,200}?[ ])??-[wP][ ]|(?<![A-Za-z])(?:plink|pscp|psftp)[ ](?:[^\\n]{0,200}?[ ])??-pw[ ]|(?<![A-Za-z])(?:https?|xh|ab|hey)[ ](?:[^\\n]{0,200}?[ ])??(?:-[aA]|--auth)[ =]['\\\"]?[A-Za-z0-9_.@-]{1,64}:|lftp[ ](?:[^\\n]{0,80}?[ ])??-u[ ][^\\s,]{1,64},|rabbitmqctl (?:add_user|change_password) [^\\s]{1,64} |(?:secrets?|parameter)[ ][^\\n]{0,200}?--(?:body|value|secret-string)[ =](?![\\\"']?\\{)|sqlplus (?:-[A-Za-z]{1,8} )?[\"']?[^\\s/\"']{1,64}/|htpasswd[ ]-[a-zA-Z]{0,6}b[a-zA-Z]{0,6}[ ][^\\s]{1,80}[ ][^\\s]{1,64}[ ]|net use (?:[^\\s]{1,8} )?[^\\s]{4,120} (?!/)|[ ]/user:[^\\s:@]{1,64}[ ](?!/)|(?<![A-Za-z])(?:cat|kubectl|vault|aws|gcloud|openssl|heroku|terraform) [^\\n]{0,200}?(?:\\.key|token|passw|secret|passphrase| rand)[^\\n]{0,60}\\r?\\n(?=[^\\s\"'{/]{8,200}[ ]?(?:\\r?\\n|$))|ConvertTo-SecureString (?:-String )?|-pass(?:in|out)?[ ][\"']?pass:|[ ]/p(?:ass|assword|w|wd)?:|::add-mask::|ENV [A-Z0-9_]{0,40}(?:TOKEN|SECRET|KEY)[ ]|define\\(\\s?[\"'](?:AUTH|LOGGED_IN|NONCE|SECRET|ENCRYPTION)[A-Z_]{0,16}[\"'],\\s{0,16}(?=[\"'])|-(?:[a-z]{1,8})?(?:store|key)pass[ ]|-U[ ][\"']?[^\\s%\"']{1,64}%|echo (?:-n )?(?=[\"']?[^\\s\"'|]{6,200}[\"']? ?\\| ?(?:sudo )?(?:chpasswd|sudo -S|(?:docker|podman|helm|crane|oras|nerdctl|gh|az|vault) (?:registry |auth )?login))(?:[\"']?[a-z_][a-z0-9_-]{0,31}:)?|(?:Credentials?|Auth(?:entication)?|AuthenticationToken|auth=|mysqli|mysqli_connect|PDO|getConnection)\\((?:[\"'][^\"'\\n]{1,100}[\"'],\\s?){1,2}(?=[\"'])|(?<![A-Za-z0-9])AC[0-9a-f]{32}[\"'\\s,:]{1,4}(?=[0-9a-f]{32}(?![0-9a-f]))|(?<![A-Za-z])(?:machine|login|account)\\s{1,4}[^\\s\"\\\\]{1,128}\\s{1,8}password\\s{1,4})(?:[\"'](?<value>[^\"'\\\\\\n]{6,200})[\"']|[\"']?(?<bare>[^\\s\"'\\\\<>]{6,200}))", "gs"),
    checks: ["no_example", "password", "assigned"],
    needles: ["--", "curl ", "sshpass", "token", "passphrase", ".key", " rand", "mysql", "mariadb", "7z", "login", "mongo", "redis-cli", "htpasswd", "net use ", "securestring", "pass", "ldap", "plink", "pscp", "psftp", "http", "xh ", "ab ", "hey ", "lftp", "rabbitmqctl", "secret", "parameter", "cypher-shell", "cqlsh", "rdesktop", "ipmitool", "mosquitto_", "sqlcmd", "bcp ", "isql", "sqlplus", "zip ", "/user:", "-mask::", "env ", "define(", "-u ", "echo ", "redential", "auth", "pdo(", "getconnection", "ac", "password"],
  },
  {
    type: "secret",
    pattern: new RegExp("(?:(?:^|[\\n;&|$#>(`][ \\t]{0,8}|sudo[ ])(?:[a-z][a-z0-9_.-]{0,20}[ ]){1,3}(?:(?<=net[ ])user|(?<=alias[ ])set|login|authtoken|add-authtoken|(?:add|create)[_-]?user|user[_-]?add|api-?key|passwd)(?:[ ][^\\s]{1,100}){0,4}?[ ]|(?<![A-Za-z])LOGIN[ ][^\\s]{1,80}[ ]|USER[ ][^\\s]{1,64}\\r?\\n(?:[^\\n]{0,80}\\n){0,2}PASS[ ]|(?:[Tt]oken|TOKEN|[Ss]ecret|[Cc]redential|[Aa]uth|[Ll]ogin|[Aa]pi_?[Kk]ey|[Pp]assw)[A-Za-z_]{0,24}\\((?:[A-Za-z_.]{1,40},\\s?|[\"'][^\"'\\n]{1,80}[\"'],\\s?){0,2}(?=[\"'][^/:\"'\\n]{8,200}[\"'])|[ ]-[pPwW][ ](?=[^\\s]{0,64}[0-9])(?=[^\\s]{0,64}[a-z])(?=[^\\s]{0,64}[A-Z])(?=[^\\s]{0,64}[!#$%^&*]))[\"']?(?!-|[^\\s\"']{0,100}://|[^\\s@]{1,64}@[a-z])(?=[^\\s\"']{0,64}[0-9])(?=[^\\s\"']{0,64}[A-Za-z])(?<value>[^\\s\"'`<>|\\\\(){}]{8,200})", "gs"),
    checks: ["no_example", "strong"],
    needles: ["ogin", "login", "auth", "oken", "token", "alias set", "net user", "user", "passwd", "ecret", "redential", "auth", "assw", "api", "api", "pass", " -"],
  },
  {
    type: "secret",
    pattern: new RegExp("(?<name>(?:password|passwd|passphrase|passcode|passwort|kennwort|contrase(?:\u00f1|n)a|mot[ _]de[ _]passe|pwd|secret|token|(?:api|access|secret|encryption|signing|auth)[ _-]?key|requirepass|identified[ ]by)(?:[_.-][A-Za-z0-9_.-]{0,16}|s)?)(?:[\"'`]?[ \\t]{0,4}(?:\\([^()\\n]{1,24}\\)[ \\t]{0,2})?(?:is|was|ist|lautet|est|es|:|=):?[ \\t]{1,4}[\"'`\u00ab]?|[\"'`]?[ \\t]{0,8}\\|[ \\t]{0,8}[\"'`]?|[\"'],\\s{0,4}(?:\\\\?[\"']){1,2}|[\"'](?:,\\s{0,16}[\"'][a-z_]{1,16}[\"']:\\s?[\"'][^\"'\\n]{0,40}[\"']){0,3},\\s{0,16}[\"']value[\"']:\\s?[\"']|[\"']?(?:\\s[a-z:]{1,16}=[\"'][^\"'<>\\n]{0,40}[\"']){0,3}[ ]?>|[\"'](?:\\s[a-z:-]{1,16}=[\"'][^\"'<>\\n]{0,40}[\"']){0,3}\\s{1,4}(?:value|content)=[\"']|[\"']?[ \\t]{0,4}\\r?\\n[+>\\s-]{0,16}(?:value|default)[\"']?[ \\t]{0,4}[:=][ \\t]{1,4}[\"']?|[\"']\\s{0,4}\\{[^{}]{0,120}?default\\s{0,4}=\\s{0,4}[\"']|(?<!token)(?<!secret)(?<!key)[ \\t]{1,8}[\"'`]?(?![A-Za-z0-9_]{1,40}[=:(\\[]|[a-z_]{1,40}/))(?<value>[^\\s\"'`<>|\\\\]{7,200}[^\\s\"'`<>|\\\\.,;:)\\]}\u00bb])", "gsi"),
    checks: ["no_example", "strong", "assigned"],
    needles: ["pass", "kennwort", "contrase", "pwd", "secret", "token", "key", "identified by"],
  },
  {
    type: "secret",
    pattern: new RegExp("(?:(?:[Pp]ass|PASS|[Pp]wd|PWD|[Ss]ecret|SECRET|[Tt]oken|TOKEN|[Cc]redential|(?:[Aa]pi|API|[Aa]ccess|ACCESS|[Ss]igning|[Pp]rivate|PRIVATE|[Mm]aster|[Ll]icense|[?&])[ _-]?(?:[Kk]ey|KEY)|[Aa]uth|AUTH)(?:(?!ssh-|sha\\d|SHA|[Pp]ubli|[Ff]inger|[Hh]ash|[Dd]igest|[Ii]ntegrity|[Cc]ursor|[Nn]ext|://)[^\\n]){0,40}?(?:\\r?\\n[^\\n]{0,12}?)?(?<![A-Za-z0-9+/_.$-])(?=[A-Za-z+/_=-]{0,64}[0-9])(?=[A-Z0-9+/_=-]{0,64}[a-z])(?=[a-z0-9+/_=-]{0,64}[A-Z])(?!AAAA|[A-Z]\\d?-)(?<value>(?=(?<atom0>[A-Za-z0-9+/_=-]{12,200}))\\k<atom0>)(?![.(\\[]?[A-Za-z0-9(\\[]|[@#$%^&*])|(?:[Pp]assw|PASSW|[Ll]og(?:ged)? in|[Cc]reds|[ (][Pp][Ww][ :]|[Pp]assphrase|parola|senha|twoord|ifre|[Mm]ot de passe|haslo|heslo)[^\\n]{0,40}?(?<=[\\s\"'`\u00ab\u201c:=])(?=[^\\s0-9]{1,64}[0-9])(?=[^\\sA-Z]{0,64}[A-Z])(?=[^\\sa-z]{0,64}[a-z])(?=[A-Za-z0-9]{1,64}[#!@$%^&+*?~-])(?<bare>[A-Za-z0-9#!@$%^&+*?~-]{7,64}(?:[A-Za-z0-9#$%&+*]|(?<=[0-9])[!@?]))(?=[\\s\"'`\u00bb\u201d.,;:!)?]|$))", "gs"),
    checks: ["no_example", "random"],
    needles: ["pass", "pwd", "secret", "token", "credential", "key", "auth", "log in", "logged in", "creds", "pw ", "pw:", "parola", "senha", "twoord", "ifre", "mot de passe", "haslo", "heslo"],
  },
  {
    type: "password",
    pattern: new RegExp("(?:(?:my|our|your)[ ](?:[a-z0-9-]{1,20}[ ]){0,3}(?:key|token)[ ](?=[\"'`]?[A-Za-z0-9_-]{20})|(?:use|using|try|enter|set|took|to)[ ](?=[^\\s]{6,80}[ ]as[ ](?:the[ ]|my[ ]|a[ ]|your[ ]|its[ ])?(?:[a-z]{1,12}[ ]){0,2}(?:passw|pw|passphrase)))[\"'`]?(?<bare>[^\\s\"'`<>|\\\\]{5,200}[^\\s\"'`<>|\\\\.,;:)])|(?:(?:passwor[dt]|kennwort|(?<![a-z])pw)(?=[^\\n:=\"'|{}]{0,40}(?:[ ](?:is|ist|lautet)|:)[ ][\"'`]?[^\\s]{0,39}\\d)|(?:token|secret)(?=[ ](?![^\\n:]{0,40}(?:id|hash|digest|sha\\d*|type|name|url)s?:)[^\\n:=\"'|,.;]{1,40}:[ ][\"'`]?(?=[^\\s]{20})[^\\s]{0,40}\\d)|contrase[\u00f1n]a|mot[ ]de[ ]passe|senha|wachtwoord|has[l\u0142]o|heslo|salasana|l[o\u00f6]senord|adgangskode|parola|\u043f\u0430\u0440\u043e\u043b\u044c|\u5bc6[\u7801\u78bc]|\u30d1\u30b9\u30ef\u30fc\u30c9|\ube44\ubc00\ubc88\ud638)[^\\n:\uff1a=\"'|\u662f\u306f]{0,40}?(?:[ ]?[:\uff1a=]|[ ](?:is|ist|lautet|est|es|\u00e9|\u00e8|\u00e4r|er|on|to|to[ ]jest|\u044d\u0442\u043e)[ ]|[\u662f\u4e3a\u70ba\u306f])[ ]?[\"'`\u00ab\u201c\u300c]?(?<value>[^\\s\"'`<>|\\\\,\uff0c\u3002\u3001\uff1b;\u00bb\u201d\u300d(){}\\[\\]]{5,200}[^\\s\"'`<>|\\\\,\uff0c\u3002\u3001\uff1b;\u00bb\u201d\u300d(){}\\[\\].:!])", "gsi"),
    checks: ["no_example", "password", "said"],
    needles: ["passwor", "pw", "my ", "our ", "your ", "use ", "using ", "try ", "enter ", "set ", "took ", "to ", "token", "secret", "kennwort", "contrase", "mot de passe", "senha", "wachtwoord", "has\u0142o", "haslo", "heslo", "salasana", "senord", "adgangskode", "parola", "\u043f\u0430\u0440\u043e\u043b\u044c", "\u5bc6\u7801", "\u5bc6\u78bc", "\u30d1\u30b9\u30ef\u30fc\u30c9", "\ube44\ubc00\ubc88\ud638"],
  },
  {
    type: "password",
    pattern: new RegExp("(?<=\\|)[ ]{1,32}[`*]{0,2}(?<value>[^\\s|`]{6,200}?)[`*]{0,2}[ ]{0,64}(?=\\||\\r?\\n|$)|(?<=[(, ]')(?<bare>[^'\\n]{6,200})(?=' ?[,)])", "gs"),
    checks: ["no_example", "password", "in_column"],
    needles: ["password", "passwort", "passwd", "kennwort", "pwd"],
  },
  {
    type: "cookie",
    pattern: new RegExp("(?:cookie[\"']? ?[:=]|;|-b |--cookie ) ?[\"']?[A-Za-z0-9_.-]{0,40}?(?:sess|sid|auth|token|jwt|remember)[A-Za-z0-9_.-]{0,24}=(?<value>[^;\\s\"'\\\\,]{12,2000})", "gsi"),
    checks: ["no_example", "token"],
    needles: ["cookie", ";", "-b "],
  },
];

export const COMMON_PASSWORDS = new Set(["123456", "12345678", "abc123", "admin", "admin123", "always", "bar", "baz", "bool", "bytes", "changeme", "default", "development", "empty", "false", "foo", "guest", "guestguest", "hidden", "hunter2", "incorrect", "invalid", "latest", "letmein", "localhost", "minio", "minioadmin", "mongo", "mysql", "none", "null", "number", "optional", "pass", "pass123", "passw0rd", "password", "password1", "password123", "postgres", "production", "pw", "qux", "rabbitmq", "redis", "required", "root", "secret", "secret123", "staging", "str", "string", "test", "test123", "testing", "text", "tiger", "true", "undefined", "user", "username", "wrong"]);
export const ABOUT_PASSWORDS = new RegExp("accept|account|adgangs|admin|administrator|alphanumeric|application|argon|argument|attribute|authent|authori|automatic|available|base64|bcrypt|blank|case-|change|character|column|config|confirm|connection|contrase|credential|crypto|database|default|denied|deprecated|description|development|disabled|enabled|encrypt|entered|environ|error|example|exist|expire|fail|field|forgot|function|generat|hash|heslo|ignore|implementation|incorrect|incorrect|information|input|interactive|interface|kennwort|kubernetes|label|length|login|manager|manda|mask|match|maximum|minimum|missing|necessary|nullable|number|option|parameter|params|parol|pass|payload|pbkdf|permission|placeholder|plain|plaintext|please|policy|production|prompt|property|protect|provided|provider|pwd|random|readonly|recommended|redact|request|requir|reset|response|rotat|salasana|scrypt|secret|senha|sensitive|sha\\d|stored|string|strong|supported|token|unchanged|undefined|unknown|unspecified|unsupported|user|valid|value|variable|vault|wachtwoord|weak|wrong");
