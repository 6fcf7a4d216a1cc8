"""Let the agent attempt the suites, with the checkpoint that served first: the gate compares.

Attempts that are known already are not made again, unless they are too old for the gate: then
others are made.
"""

from penstock.channels.channel import channel_state, policy_of
from penstock.checkpoints.attempt import AttemptScope
from penstock.checkpoints.scores import attempts_of
from penstock.gate.policy import EvidenceRules, parse
from penstock_jobs.benchmarks import running
from penstock_jobs.benchmarks.deciding import UntilDecided
from penstock_jobs.benchmarks.suite import TASK_BYTES_MAX, Suite, read_suite
from penstock_jobs.loop import environment
from penstock_jobs.loop.keeping import database_now
from penstock_jobs.loop.loopfile import Bench, LoopFile
from penstock_jobs.loop.missing import missing, oldest_us
from penstock_jobs.loop.policies import apply_policy
from penstock_jobs.loop.stage import Answer, Done, Facts, Work

NAME = "bench"


def wanted(_loop: LoopFile) -> bool:
    return True


def inputs(work: Work) -> Facts:
    suites = [
        {
            "suite": suite.name,
            "version": suite.version,
            "agent": one.agent,
            "serving": one.serving,
            "attempts": one.attempts,
            "until_decided": one.until_decided,
            "isolated": one.isolated,
        }
        for one in work.loop.bench
        for suite in (read_suite(one.folder),)
    ]
    checkpoint = work.results["register"]["checkpoint"]
    return {"suites": suites, "checkpoint": checkpoint, "parent": work.parent}


def run(work: Work, inputs: Facts) -> Answer:
    apply_policy(work)
    made: dict[str, dict[str, int]] = {}
    for bench in work.loop.bench:
        suite = read_suite(bench.folder)
        of_suite = made.setdefault(suite.name, {})
        for checkpoint in (inputs["parent"], inputs["checkpoint"]):
            until = bench.until_decided and checkpoint == inputs["checkpoint"]
            report = _attempt(work, bench, suite, checkpoint, until_decided=until)
            of_suite[checkpoint] = report.made + report.known
    counts = "; ".join(
        f"{suite}: " + ", ".join(f"{count} of {name}" for name, count in found.items())
        for suite, found in made.items()
    )
    return Done({"attempts": made}, told=f"attempts at {counts}")


def _attempt(
    work: Work, bench: Bench, suite: Suite, checkpoint: str, *, until_decided: bool
) -> running.Report:
    lake = work.lake
    running.register_suite(lake.database, work.tenant, suite, TASK_BYTES_MAX)
    place = AttemptScope(work.tenant, suite.name, suite.version, checkpoint)
    choose: running.Choose
    if until_decided:
        choose = UntilDecided(lake.database, place, work.loop.channel)
    else:
        choose = _enough(work, place, suite, bench.attempts or suite.attempts)
    options = running.Options(
        agent=work.loop.here(bench.agent),
        serving=bench.serving and bench.serving.replace("{checkpoint}", checkpoint),
        attempts=bench.attempts,
        environment=environment.passed(bench.pass_env),
        isolated=bench.isolated,
        hidden=bench.hidden,
        visible=bench.visible,
    )
    with work.executor() as executor:
        return running.run(
            lake, executor, suite, checkpoint, options, tenant=work.tenant, choose=choose
        )


def _enough(work: Work, place: AttemptScope, suite: Suite, attempts: int) -> running.Choose:
    """So many attempts at each task that the gate takes, counted once: what gets too old while
    others are made is not made for ever."""
    database = work.lake.database
    text = policy_of(database, channel_state(database, work.tenant, work.loop.channel))
    rules = parse(text, f"the policy of {work.loop.channel}").evidence if text else EvidenceRules()
    wanted = missing(
        attempts_of(database, place),
        [one.name for one in suite.tasks],
        attempts,
        oldest_us(rules.max_age_s, database_now(database)),
    )
    return lambda _known: wanted
