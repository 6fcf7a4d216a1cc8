"""Decides whether a text that a user sent may run as a query.

This is one of two walls. It reads the syntax tree and lets through one SELECT over named
relations and known functions. The other wall is the connection, which has no access to files
or the network beyond the segments of the lake. Each must hold alone.
"""

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from penstock.lake.errors import QueryRefused

#: The longest text that is looked at.
SQL_LENGTH_MAX = 200_000

_Node = dict[str, Any]
_Names = frozenset[str]


def _words(text: str) -> frozenset[str]:
    """A list of words as a set: shorter to read, and to compare with DuckDB's own lists."""
    return frozenset(text.split())


# Nodes without a class: statements, what FROM holds, and what stands behind it.
_STRUCTURE = _words(
    """
    BASE_TABLE DISTINCT_MODIFIER EMPTY EXPRESSION_LIST JOIN LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER
    ASCENDING DESCENDING ORDER_DEFAULT ORDER_MODIFIER PIVOT RECURSIVE_CTE_NODE
    SELECT_NODE SET_OPERATION_NODE SHOW_REF SUBQUERY TABLE_FUNCTION
    """
)

# Classes of expressions. PARAMETER is left out: nothing binds one.
_EXPRESSIONS = _words(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT DEFAULT FUNCTION LAMBDA
    LAMBDA_REF OPERATOR POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)

_TABLE_FUNCTIONS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"}
)

# Pure functions of their arguments, and the clock and the dice. Everything else is refused:
# what reads settings, variables, files, the catalogue or other queries, what sleeps or logs,
# and every function that a later DuckDB or an extension may bring.
_FUNCTIONS = _words(
    """
    ! !__postfix !~~ !~~* % & && * ** + - -> ->> / // < <-> << <= <=> <> <@ = != > >= >> @ @>
    ^ ^@ | || ~ ~~ ~~* ~~~
    abs acos acosh add age aggregate any_value apply approx_count_distinct approx_quantile
    approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null
    arg_min_nulls_last argmax argmin array_agg array_aggr array_aggregate array_append array_apply
    array_cat array_concat array_contains array_cosine_distance array_cosine_similarity
    array_cross_product array_distance array_distinct array_dot_product array_extract array_filter
    array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product
    array_intersect array_length array_negative_dot_product array_negative_inner_product
    array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front
    array_reduce array_resize array_reverse array_reverse_sort array_select array_slice array_sort
    array_to_json array_to_string array_transform array_unique array_value array_where array_zip
    ascii asin asinh atan atan2 atanh avg bar base64 bin bit_and bit_count bit_length bit_or
    bit_position bit_xor bitstring bitstring_agg bool_and bool_or cardinality cbrt ceil ceiling
    century char_length character_length chr concat concat_ws contains corr cos cosh cot count
    count_if count_star countif covar_pop covar_samp cume_dist damerau_levenshtein date_add
    date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname
    dayofmonth dayofweek dayofyear days_in_month decade decode degrees dense_rank divide editdist3
    element_at encode ends_with entropy epoch epoch_ms epoch_ns epoch_us equi_width_bins era error
    even exp factorial favg fdiv fill filter first first_value flatten floor fmod format
    format_bytes formatReadableDecimalSize formatReadableSize from_base64 from_binary from_hex
    from_json from_json_strict fsum gamma gcd gen_random_uuid generate_series generate_subscripts
    geomean geometric_mean get_bit get_current_time get_current_timestamp grade_up greatest
    greatest_common_divisor group_concat hamming hash hex histogram histogram_exact hour if ifnull
    instr invoke isfinite isinf isnan isodow isoyear jaccard jaro_similarity
    jaro_winkler_similarity json json_array json_array_length json_contains json_deep_merge
    json_exists json_extract json_extract_path json_extract_path_text json_extract_string
    json_group_array json_group_object json_group_structure json_insert json_keys json_merge_patch
    json_normalize json_object json_pretty json_quote json_remove json_replace json_set
    json_strip_nulls json_structure json_transform json_transform_strict json_type json_valid
    json_value julian kahan_sum kurtosis kurtosis_pop lag last last_day last_value lcase lcm lead
    least least_common_multiple left left_grapheme len length length_grapheme levenshtein lgamma
    like_escape ilike_escape not_like_escape not_ilike_escape list list_aggr list_aggregate
    list_any_value list_append list_apply list_approx_count_distinct list_avg list_bit_and
    list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
    list_cosine_distance list_cosine_similarity list_count list_distance list_distinct
    list_dot_product list_element list_entropy list_extract list_filter list_first list_grade_up
    list_has list_has_all list_has_any list_histogram list_indexof list_inner_product
    list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median list_min
    list_mode list_negative_dot_product list_negative_inner_product list_pack list_position
    list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select
    list_sem list_skewness list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg
    list_sum list_transform list_unique list_value list_var_pop list_var_samp list_where list_zip
    listagg ln log log10 log2 lower lpad ltrim mad make_date make_time make_timestamp
    make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat map_contains
    map_contains_entry map_contains_value map_entries map_extract map_extract_value
    map_from_entries map_keys map_values max max_by md5 md5_number md5_number_lower
    md5_number_upper mean median microsecond millennium millisecond min min_by minute mismatches
    mod mode month monthname multiply nanosecond nextafter nfc_normalize normalized_interval now
    nth_value ntile nullif octet_length ord overlay parse_dirname parse_dirpath parse_filename
    parse_formatted_bytes parse_path percent_rank pi position pow power prefix printf product
    quantile quantile_cont quantile_disc quarter radians random range rank rank_dense reduce
    regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy remap_struct repeat replace reservoir_quantile
    reverse right right_grapheme round round_even roundbankers row row_number row_to_json rpad
    rtrim second sem set_bit sha1 sha256 sign signbit sin sinh skewness split split_part sqrt
    starts_with stddev stddev_pop stddev_samp str_split str_split_regex strftime string_agg
    string_split string_split_regex string_to_array strip_accents strlen strpos strptime
    struct_concat struct_contains struct_extract struct_extract_at struct_has struct_indexof
    struct_insert struct_keys struct_pack struct_position struct_update struct_values substr
    substring substring_grapheme subtract suffix sum sumkahan tan tanh time_bucket timezone
    timezone_hour timezone_minute to_base to_base64 to_binary to_centuries to_days to_decades
    to_hex to_hours to_json to_microseconds to_millennia to_milliseconds to_minutes to_months
    to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate
    trim trunc try_strptime typeof ucase unbin unhex unicode union_extract union_tag union_value
    unnest unpivot_list upper url_decode url_encode uuid uuid_extract_timestamp
    uuid_extract_version uuidv4 uuidv7 var_pop var_samp variance variant_array_length
    variant_contains variant_exists variant_extract variant_extract_string variant_keys
    variant_type variant_typeof wavg week weekday weekofyear weighted_avg xor year yearweek
    """.lower()
)


def check_query(
    connection: duckdb.DuckDBPyConnection, sql: str, relations: frozenset[str]
) -> frozenset[str]:
    """The relations that `sql` reads. Raises QueryRefused unless it is one SELECT that reads
    some of `relations` and nothing else.

    Pass the connection that will run the query, so that one parser reads the text both times,
    and run the text unchanged. The connection must be idle: no result half read.
    """
    tree = _parse(connection, sql)
    known = frozenset(_fold(name) for name in relations)
    walk = _Walk(known)
    try:
        walk.visit(tree, frozenset())
    except RecursionError:
        raise QueryRefused(why="it is nested too deeply") from None
    return frozenset(name for name in relations if _fold(name) in walk.read)


def _parse(connection: duckdb.DuckDBPyConnection, sql: str) -> _Node:
    if len(sql) > SQL_LENGTH_MAX:
        raise QueryRefused(why=f"it is longer than {SQL_LENGTH_MAX:,} characters")
    # The parser would stop at a NUL, and the runner go on behind it.
    if "\0" in sql:
        raise QueryRefused(why="it contains a NUL character")
    try:
        # All is fetched, so that the connection is free for the query itself.
        rows = connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [sql]).fetchall()
        answer = json.loads(rows[0][0])
    except (duckdb.DataError, duckdb.ProgrammingError, RecursionError, ValueError) as error:
        raise QueryRefused(why=f"it cannot be parsed ({error})") from error
    if answer.get("error") is not False:
        raise QueryRefused(why=_explain(answer))
    statements = answer.get("statements", [])
    if len(statements) != 1:
        found = "several statements" if statements else "no statement"
        raise QueryRefused(why=f"a query is exactly one SELECT, and this is {found}")
    tree: _Node = statements[0]
    return tree


def _explain(answer: _Node) -> str:
    if answer.get("error_type") == "not implemented":
        return (
            "a query is exactly one SELECT (or WITH, VALUES, FROM, DESCRIBE, SUMMARIZE, SHOW "
            "TABLES) without parameters of mixed kinds; nothing can be written or set. Statements "
            "of the form EXPLAIN and PIVOT … ON … are not supported either: for the latter write "
            "SELECT … FROM view PIVOT (… FOR … IN (…)), or sum(…) FILTER (WHERE …)"
        )
    return f"it cannot be parsed ({answer.get('error_message', 'no reason given')})"


def _fold(name: str) -> str:
    """Lower-case as DuckDB compares names: ASCII letters only."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


class _Walk:
    """Visits every node of a tree; `ctes` are the names that the place sees as its own."""

    def __init__(self, relations: _Names) -> None:
        self.relations = relations
        self.read: set[str] = set()

    def visit(self, value: object, ctes: _Names) -> None:
        if isinstance(value, list):
            for item in value:
                self.visit(item, ctes)
        elif isinstance(value, dict):
            self._node(value, ctes)

    def _node(self, node: _Node, ctes: _Names) -> None:
        kind = node.get("type")
        if "class" in node:
            self._expression(node)
        elif isinstance(kind, str):
            self._structure(node, kind, ctes)
        if "cte_map" in node:
            ctes = self._ctes(node["cte_map"], ctes)
        for key, child in node.items():
            if key == "cte_map" or (kind == "TABLE_FUNCTION" and key == "function"):
                continue
            # The first half of a recursive CTE does not see the CTE: there its name is a table's.
            recursive = kind == "RECURSIVE_CTE_NODE" and key == "right"
            self.visit(child, ctes | {_fold(node["cte_name"])} if recursive else ctes)
        if kind == "TABLE_FUNCTION":
            self.visit(node["function"].get("arguments"), ctes)

    def _ctes(self, cte_map: _Node, ctes: _Names) -> _Names:
        """The names that the node's own CTEs add: each sees those before it and not itself."""
        for entry in cte_map.get("map", []):
            self.visit(entry["value"], ctes)
            ctes |= {_fold(entry["key"])}
        return ctes

    def _structure(self, node: _Node, kind: str, ctes: _Names) -> None:
        if kind not in _STRUCTURE:
            raise QueryRefused(why=f"it contains a part that is not supported ({kind})")
        if kind == "BASE_TABLE":
            self._table(node, ctes)
        elif kind == "TABLE_FUNCTION":
            self._table_function(node["function"])
        elif kind == "SHOW_REF":
            self._show(node)
        elif kind == "PIVOT" and any(pivot.get("pivot_enum") for pivot in node.get("pivots", [])):
            raise QueryRefused(why="PIVOT over a type is not supported; name the values")

    def _table(self, node: _Node, ctes: _Names) -> None:
        path = _path(node)
        if len(path) != 1 or path[0] != node.get("table_name"):
            raise QueryRefused(why=f"{'.'.join(path)} names a schema; write the view's name alone")
        if node.get("at_clause"):
            raise QueryRefused(why="AT is not supported; ask for an earlier state with --as-of")
        if _fold(path[0]) not in self.relations | ctes:
            views = ", ".join(sorted(self.relations))
            raise QueryRefused(why=f"there is no view {path[0]}; the views are {views}")
        self.read.add(_fold(path[0]))

    def _table_function(self, node: _Node) -> None:
        # Its own check: more functions may stand in an expression than in FROM.
        if node.get("class") != "FUNCTION" or _function(node) not in _TABLE_FUNCTIONS:
            raise QueryRefused(why=f"the table function {'.'.join(_path(node))} may not be used")

    def _show(self, node: _Node) -> None:
        kind = node.get("show_type")
        if kind in {"DESCRIBE", "SUMMARY"} and node.get("query") and not _path(node):
            return
        if kind == "SHOW" and [_fold(name) for name in _path(node)] in (
            [name] for name in self.relations
        ):
            self.read.add(_fold(_path(node)[0]))
            return
        if kind == "SHOW_SPECIAL" and _path(node) == ['"tables"']:
            self.read |= self.relations
            return
        raise QueryRefused(
            why="of SHOW and DESCRIBE only SHOW TABLES and DESCRIBE view may be used"
        )

    def _expression(self, node: _Node) -> None:
        kind = node["class"]
        if kind not in _EXPRESSIONS:
            hint = "a query takes no parameters" if kind == "PARAMETER" else "not supported"
            raise QueryRefused(why=f"it contains an expression of the class {kind}: {hint}")
        if kind in {"FUNCTION", "WINDOW"} and _function(node) not in _FUNCTIONS:
            raise QueryRefused(why=f"the function {'.'.join(_path(node))} may not be used")
        if kind == "TYPE" and len(_path(node)) != 1:
            raise QueryRefused(why=f"the type {'.'.join(_path(node))} names a schema")


def _path(node: _Node) -> list[str]:
    """The parts of the name in `node`; one part when it is not qualified."""
    path: list[str] = node["qualified_name"]["path"] if "qualified_name" in node else []
    return list(_qualifiers(node)) if len(path) == 1 else path


def _qualifiers(node: _Node) -> Iterator[str]:
    """Catalogue and schema where the older fields give them, then the name."""
    for key in ("catalog_name", "schema_name", "catalog", "schema"):
        if node.get(key):
            yield node[key]
    yield node["qualified_name"]["path"][0]


def _function(node: _Node) -> str:
    path = _path(node)
    return _fold(path[0]) if len(path) == 1 and path[0] == node.get("function_name") else ""
