"""Tables of Apache Iceberg over the lake's segments: other engines read them without a copy."""
