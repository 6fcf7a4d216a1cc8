"""Webhooks: addresses that receive each change, and the signatures of their messages."""

import base64
import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field

import msgspec
import sqlalchemy as sa

from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import OPERATOR, Deed
from penstock.backends.database.engine import Database, now_us
from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.errors import one_line
from penstock.core.lake_keys import SecretKeyUnfit, SecretSeal
from penstock.core.settings import Settings, without_secrets
from penstock.registry.channels.change import ChangeAnswer, WebhookUnknown
from penstock.registry.channels.tables import channel, delivery, webhook

#: Targets are called `webhook:ID`.
WEBHOOK_PREFIX = "webhook:"
_SECRET_PREFIX = "whsec_"
_SECRET_BYTES = 32
_GONE = 410
#: Answers are read up to this size and ignored.
_ANSWER_BYTES_MAX = 64 * 1024
_UNREADABLE = "(encrypted with a missing key)"


@dataclass(frozen=True)
class Webhook:
    """`channel` is None for a webhook of all the tenant's channels."""

    id: str
    tenant: str
    channel: str | None
    url: str | None = field(repr=False)
    created_at: int

    @property
    def target(self) -> str:
        return WEBHOOK_PREFIX + self.id

    @property
    def shown(self) -> str:
        """The address without its secrets: many services put one into it."""
        return without_secrets(self.url) if self.url is not None else _UNREADABLE


def add_webhook(
    database: Database,
    settings: Settings,
    tenant: str,
    url: str,
    name: str | None = None,
    *,
    by: str = OPERATOR,
) -> tuple[Webhook, str]:
    """Add a webhook. Returns it with the secret of its signatures, which is shown only once."""
    _address_of(url)
    webhook_id = secrets.token_hex(8)
    secret = _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
    row, seal = {"id": webhook_id, "tenant": tenant, "channel": name}, SecretSeal.of(settings)
    for column, text in (("url", url), ("secret", secret)):
        row[column] = seal.seal(text, _place(webhook_id, column))
    with database.write() as connection:
        inserted = sa.insert(webhook).values(**row, created_at=now_us())
        created_at = connection.execute(inserted.returning(webhook.c.created_at)).scalar_one()
        added = Webhook(webhook_id, tenant, name, url, created_at)
        # A channel that is created later is delivered from its first change on.
        position = {
            "target": sa.literal(added.target),
            "tenant": channel.c.tenant,
            "channel": channel.c.name,
            "next_version": channel.c.version + 1,
            "attempts": sa.literal(0),
            "try_at": sa.literal(0),
        }
        positions = sa.select(*position.values()).where(channel.c.tenant == tenant)
        if name is not None:
            positions = positions.where(channel.c.name == name)
        connection.execute(sa.insert(delivery).from_select(list(position), positions))
        facts = {"what": "added", "channel": name}
        append(connection, Deed(tenant, by, "webhook", f"webhook {webhook_id}", facts))
    return added, secret


def check_webhook(url: str, settings: Settings) -> None:
    """Raises InvalidInput, AddressForbidden, SettingInvalid."""
    EgressPolicy.for_tenants(settings).check_host(_address_of(url).host)


def list_webhooks(database: Database, settings: Settings, tenant: str) -> list[Webhook]:
    """A tenant's webhooks, the newest last. The address is None if its encryption key is
    missing."""
    query = sa.select(webhook).filter_by(tenant=tenant, removed_at=None)
    query = query.order_by(webhook.c.created_at, webhook.c.id)
    seal = SecretSeal.of(settings)

    def address(webhook_id: str, sealed: str) -> str | None:
        try:
            return seal.open(sealed, _place(webhook_id, "url"))
        except SecretKeyUnfit:
            return None

    return [
        Webhook(row.id, row.tenant, row.channel, address(row.id, row.url), row.created_at)
        for row in database.rows(query)
    ]


def _place(webhook_id: str, column: str) -> str:
    return f"webhook {webhook_id}, {column}"


def remove_webhook(database: Database, tenant: str, webhook_id: str, *, by: str = OPERATOR) -> None:
    """Remove a webhook and its pending notices. Raises WebhookUnknown."""
    hook = sa.update(webhook).filter_by(tenant=tenant, id=webhook_id, removed_at=None)
    with database.write() as connection:
        update = hook.values(removed_at=now_us())
        if connection.execute(update).rowcount == 0:
            raise WebhookUnknown(id=webhook_id)
        subject = f"webhook {webhook_id}"
        append(connection, Deed(tenant, by, "webhook", subject, {"what": "removed"}))


def signed(secret: str, body: bytes, at_s: int) -> dict[str, str]:
    """The signature headers. The id is the same for each try, so receivers can drop repetitions."""
    message_id = f"msg_{hashlib.sha256(body).hexdigest()[:32]}"
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signature = hmac.digest(key, f"{message_id}.{at_s}.".encode() + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


class DeliveryFailure(msgspec.Struct, frozen=True):
    """The reason that a target did not take a notice, and how long to pause."""

    problem: str
    pause_s: float = 0
    gone: bool = False


class WebhookTarget:
    def __init__(self, url: str, secret: str, seconds_max: float, egress: EgressPolicy) -> None:
        self._address = _address_of(url)
        self._secret = secret
        self._client = HttpClient(
            self._address, seconds_max=seconds_max, egress=egress, bytes_max=_ANSWER_BYTES_MAX
        )

    def send(self, notice: ChangeAnswer) -> DeliveryFailure | None:
        """Send a notice. None if the receiver took it."""
        body = msgspec.json.encode(notice)
        # Receivers judge the age of a message by the clock of this machine, not the database's.
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "penstock",
            **signed(self._secret, body, int(time.time())),
        }
        if self._address.authorization:
            headers["Authorization"] = self._address.authorization
        answer = self._client.request("POST", headers, body)
        status = answer.status
        if 200 <= status < 300:  # whatever came of the rest of its answer
            return None
        problem = f"it answered {status}" if status else answer.problem
        if status == _GONE:
            problem += ": it is gone for good; remove the webhook or restore the address"
        elif 300 <= status < 400:
            problem += ": redirects are not followed"
        return DeliveryFailure(problem, answer.retry_after_s, gone=status == _GONE)

    def cut(self) -> None:
        self._client.cut()


def open_webhook(
    database: Database,
    settings: Settings,
    webhook_id: str,
    seconds_max: float,
    egress: EgressPolicy,
) -> WebhookTarget | DeliveryFailure | None:
    """Open a webhook. None if it was removed; a failure if its encryption key is missing."""
    query = sa.select(webhook).filter_by(id=webhook_id, removed_at=None)
    with database.read() as connection:
        row = connection.execute(query).one_or_none()
    if row is None:
        return None
    seal = SecretSeal.of(settings)
    try:
        url = seal.open(row.url, _place(webhook_id, "url"))
        secret = seal.open(row.secret, _place(webhook_id, "secret"))
    except SecretKeyUnfit as error:
        return DeliveryFailure(one_line(error))
    return WebhookTarget(url, secret, seconds_max, egress)


def _address_of(url: str) -> HttpAddress:
    return HttpAddress.of(url, f"The address {without_secrets(url)}")
