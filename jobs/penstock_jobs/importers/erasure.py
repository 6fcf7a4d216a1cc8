"""What is remembered of imported sources, erased: paths may name a person, and how far a source was
read may hold a part of it. The next import reads the sources of the tenant again, and tombstones
drop what was erased."""

from collections.abc import Iterator

import sqlalchemy as sa

from penstock.privacy.orders import CONTENT, ErasedPart, ErasureOrder, ErasureStep
from penstock_jobs.importers.tables import imported_source


def _forget_sources(order: ErasureOrder) -> Iterator[ErasedPart]:
    mine = sa.delete(imported_source).where(imported_source.c.tenant == order.scope.tenant)
    with order.lake.database.write() as connection:
        forgotten = connection.execute(mine).rowcount
    yield ErasedPart({"imported sources": forgotten})


PART = ErasureStep(CONTENT, _forget_sources)
