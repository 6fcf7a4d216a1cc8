"""The stages of a cycle, in their order. A new stage is a class and its place in this list."""

from penstock_jobs.loop.stages.candidate import RegisterStage, RewardsStage, ShardStage, TrainStage
from penstock_jobs.loop.stages.live import CanaryStage, WatchStage
from penstock_jobs.loop.stages.promotion import BenchStage, GateStage, PromoteStage
from penstock_jobs.loop.stages.stage import Stage

STAGES: tuple[Stage, ...] = (
    RewardsStage(),
    ShardStage(),
    TrainStage(),
    RegisterStage(),
    BenchStage(),
    GateStage(),
    PromoteStage(),
    CanaryStage(),
    WatchStage(),
)
