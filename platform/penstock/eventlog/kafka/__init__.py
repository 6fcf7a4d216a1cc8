"""The event log at scale: a topic of Apache Kafka."""

import logging

# It reports each connection that it loses; what matters of that comes as our own errors.
logging.getLogger("kafka").setLevel(logging.CRITICAL)
