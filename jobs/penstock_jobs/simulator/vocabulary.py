"""The words that code, output and prose are made of, and identifiers made from them."""

from penstock_jobs.simulator.grammar import Dice, lines, words

NOUNS = words("""
    account adapter address alert allowance amount anchor answer archive artifact asset
    attempt audit badge balance batch beacon bin block booking bookmark branch bucket budget
    buffer bundle cache calendar campaign carrier cart catalog category channel charge
    checkout chunk claim client cohort column comment contact contract cookie counter coupon
    courier credit currency cursor customer dashboard deadline debit delivery deposit device
    digest discount dispatch document domain draft driver dump editor element endpoint
    engine entry envelope estimate facet fallback feature feed fee field filter fleet folder
    forecast form fragment frame gateway gauge goal grant graph group handle header
    heartbeat hook host image index inbox ingredient invite invoice item job journal key
    label lane lease ledger lesson level license limit listing loader locale lock manifest
    margin marker matcher member memo merchant metric milestone module monitor mount
    nickname node note notice offer offset option order outbox outlet owner page panel
    parcel partner passage patch payee payload payment payout permit phase pickup pipeline
    plan plugin policy pool port portion preset price printer probe profile promo prompt
    proof proxy query queue quota quote rate reader receipt recipe record refund region
    relay reminder renewal replica report request reserve resource retry review reward ride
    role rollup route row rule sample scan schedule scope score seat section segment sensor
    series session setting shard shelf shift shipment signal sitemap slice slot snapshot
    socket source span stage statement station step stock store stream stub subject summary
    supplier survey table tag target tariff task tax team template tenant thread threshold
    ticket tier timer token topic trace track transfer trigger trip tunnel unit upload usage
    vault vendor venue version visit voucher wallet warehouse watcher webhook widget window
    worker workflow workspace zone
""")

VERBS = words("""
    accept acquire advance allocate annotate append apply approve archive assign attach
    authorize balance begin bind build bump cancel capture charge check claim clamp clean
    close collect combine commit compact compare compute confirm copy count create debounce
    decode defer delete deliver derive describe detach detect discard dispatch drain drop
    emit encode enqueue ensure escalate estimate evict expand expire export extend extract
    fetch fill filter find finish flatten flush fold forward freeze gather group grow handle
    hash hide hydrate import include index infer inspect invalidate issue join keep label
    lease limit link list load lock lookup mark match measure merge migrate mirror move
    normalize notify offer open order pack parse patch pause pick plan poll prepare preview
    project promote prune publish pull push quote read rebuild receive reconcile record
    refresh refund register release reload remove rename render renew reorder repair replay
    report rescore reserve reset resolve restore resume retry revoke rotate round route
    sample save scan schedule score seal select send settle shift shrink skip sort split
    stage start stop store submit sum suspend swap sync tag tally throttle touch track
    transform trim truncate unlock unwrap update upsert validate verify visit void wait warm
    watch weigh withdraw wrap write
""")

QUALIFIERS = words("""
    active aged annual archived available base billed blocked broken bulk cached central
    closed cold combined common compact current daily dead default deferred dirty distinct
    dry due early empty expected expired extra failed fallback fast final first fixed flat
    foreign fresh frozen full global gross hidden hot hourly idle inner internal known large
    last late latest legacy linked live local locked lost main manual max merged min minor
    missing monthly nearest net new newest next nightly old oldest open optional outer
    overdue paid partial past peak pending planned prior private public queued quick raw
    ready recent regional remaining remote required safe scoped secondary shared short
    signed silent single skipped slow small soft sorted spare staged stale static strict
    tail temporary total trusted unique unpaid unread upcoming used valid visible weekly
""")

TYPES = words("""
    Adapter Batch Builder Cache Client Command Config Context Controller Decision Entry
    Error Event Filter Handler Index Key Ledger Line List Loader Mapper Model Options
    Outcome Page Params Plan Policy Query Reader Record Registry Repository Request Response
    Result Row Rule Service Snapshot State Status Store Summary Token Tracker Update View
    Window Worker Writer
""")

MODULES = words("""
    api auth billing cart catalog checkout core dashboard delivery domain exports feeds
    fleet forms handlers imports inventory jobs ledger mail metrics notify orders payouts
    pricing queue reports routes rules scheduling search sessions settings shipping stock
    storage sync tasks tenants tracing transport usage views webhooks workers
""")

ORGANISATIONS = words("""
    amberlane brightkiln coppergate dunewater eastmere fernhollow galehouse hollowpine
    inkwell juniperco kestrelworks larkspur millrace northquay oakenfold pebblebank
    quarrygate redthorn saltmarsh tidewater
""")

NUMBERS = (
    *map(str, range(21)),
    *words("""
    24 25 28 30 32 36 40 45 48 50 60 64 72 75 80 90 96 99 100 120 128 144 150 180 200 250 256
    300 365 400 404 409 429 500 503 512 600 750 900 999 1000 1024 1200 1500 1800 2048 2500 3000
    3600 4096 5000 7200 8192 10000 65536 86400
    """),
)

EXCEPTIONS = words("""
    AssertionError AttributeError ConnectionError FileNotFoundError IndexError KeyError
    LookupError NotImplementedError OverflowError PermissionError RuntimeError TimeoutError
    TypeError UnicodeDecodeError ValueError ZeroDivisionError
""")

ROUTES = words("/api /internal /admin /public /hooks /v1 /v2 /v3 /graph /health")

# Shapes of what can be wrong with a subject that stands before them.
COMPLAINTS = lines("""
is already <quality>
is not <quality>
must <act> first
must not <act> a <noun>
has no <noun>
has <num> <noun> too many
does not match the <quality> <noun>
was <quality> before <noun> <num>
is older than its <noun>
cannot <act> without a <noun>
has the wrong <noun>
is not allowed to <act> here
was seen twice in <noun> <hash>
refers to a <quality> <noun>
is locked by <noun> <hash>
needs a <quality> <noun> to <act>
exceeds <num> <noun> rows
could not <act> the <noun>
belongs to another <noun>
is <num> after rounding
failed to <act>: <quality> <noun>
never left the <noun>
points outside of its <noun>
lost its <noun> at <num>
""")


def snake(dice: Dice) -> str:
    """An identifier such as `merge_pending_order`."""
    draw = dice.random()
    noun = dice.pick(NOUNS)
    if draw < 0.3:
        return noun
    if draw < 0.55:
        return f"{dice.pick(QUALIFIERS)}_{noun}"
    if draw < 0.85:
        return f"{noun}_{dice.pick(NOUNS)}"
    return f"{dice.pick(QUALIFIERS)}_{noun}_{dice.pick(NOUNS)}"


def snake_function(dice: Dice) -> str:
    if dice.chance(0.3):
        return f"{dice.pick(VERBS)}_{dice.pick(NOUNS)}"
    return f"{dice.pick(VERBS)}_{snake(dice)}"


def pascal(identifier: str) -> str:
    return identifier.title().replace("_", "")


def camel(identifier: str) -> str:
    first, _, rest = identifier.partition("_")
    return first + pascal(rest)
