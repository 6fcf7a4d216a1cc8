"""The errors of OTLP."""

from penstock.errors import PenstockError


class FormUnknown(
    PenstockError,
    exit_status=2,
    http_status=415,
    http_headers={"Accept-Post": "application/x-protobuf, application/json"},
):
    """OTLP is not taken as {form}; send application/x-protobuf or application/json, as an exporter
    does with OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf or http/json."""
