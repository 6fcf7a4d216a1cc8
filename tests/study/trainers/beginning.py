"""Where a loop of these tests begins: at a checkpoint whose files a trainer can read."""

from pathlib import Path

from penstock.registry.checkpoints.digests import digest_files
from tests.support.checkpoint_factory import add, promote
from tests.support.loop_world import RECIPE, World

PARENT = "tiny"


def begin(world: World, folder: Path) -> None:
    """The channel is at it, and the recipe asks for advantages."""
    digest = digest_files(str(folder), world.hand.lake.settings).digest
    add(world.database, PARENT, uri=folder.as_uri(), digest=digest)
    promote(world.database, PARENT)
    world.write("recipe.toml", RECIPE + '[advantage]\nkind = "stratum"\n')
