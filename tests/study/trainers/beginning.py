"""Where a loop of these tests begins: at a checkpoint whose files a trainer can read."""

from pathlib import Path

from penstock.channels.promotion import Promotion, promote
from penstock.checkpoints.digests import digest_files
from penstock.checkpoints.registration import register
from tests.support.checkpoint_factory import PASS
from tests.support.loop_world import CHANNEL, RECIPE, TENANT, World

PARENT = "tiny"


def begin(world: World, folder: Path) -> None:
    """The channel is at it, and the recipe asks for advantages."""
    register(
        world.database,
        world.hand.lake.settings,
        tenant=TENANT,
        name=PARENT,
        uri=folder.as_uri(),
        digest=digest_files(str(folder), world.hand.lake.settings).digest,
        actor="test",
    )
    wanted = Promotion(
        tenant=TENANT, channel=CHANNEL, checkpoint=PARENT, reason="it can be read", actor="test"
    )
    promote(world.database, wanted, PASS)
    world.write("recipe.toml", RECIPE + '[advantage]\nkind = "stratum"\n')
