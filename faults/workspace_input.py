"""What the model check of tasks sends: Hypothesis strategies for bodies and queries.

A reference is drawn as a number, with which the machine chooses among the rows that there are.
"""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st
from workspace_shown import PRIORITIES, STATUSES, Row

NOW = datetime.now(UTC)
TODAY = NOW.replace(hour=0, minute=0, second=0, microsecond=0)
MOMENTS = [TODAY, TODAY + timedelta(days=1)]
MOMENTS += [NOW + timedelta(seconds=s) for s in (-4e7, -90_000, -3600, -1, 15, 40, 3600, 90_000, 4e7)]


def forms(moment: datetime) -> list[str]:
    """A moment as clients may write it."""
    plain = moment.replace(tzinfo=None)
    east = moment + timedelta(hours=2)
    texts = [f"{plain.isoformat()}Z", plain.isoformat("T", "milliseconds"), f"{plain:%Y-%m-%dT%H:%M:%S}.25Z"]
    return [*texts, f"{east:%Y-%m-%dT%H:%M:%S}+02:00", *([f"{plain:%Y-%m-%d}"] if moment == TODAY else [])]


NUMBERS = st.integers(0, 11)  # choose among what there is
TIMES = [text for moment in MOMENTS for text in forms(moment)]
DATES, OPTIONAL_DATES = st.sampled_from(TIMES), st.sampled_from([*TIMES, *[None] * 12])
VISIBLE = "aAbBéÉ%_σΣ"  # few, so that searches find them
LETTERS = f"{VISIBLE} "
TITLES = st.builds("{}{}".format, st.sampled_from(VISIBLE), st.text(LETTERS, max_size=5))
COMMENTS = st.builds(" {}\n{}".format, st.sampled_from(VISIBLE), st.text(LETTERS + "\n🎉", max_size=8))
TEXTS = st.none() | st.just("") | COMMENTS | st.just("Very long. " * 150)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(LETTERS, max_size=3),
    lambda inner: st.lists(inner, max_size=2),
    max_leaves=3,
)
OBJECTS = st.none() | st.dictionaries(st.sampled_from(["10", "2", "a", "é"]), JSON, max_size=2).map(
    lambda pairs: dict(sorted(pairs.items()))  # an object in another order is another one
)
DETAILS = {
    "description": TEXTS,
    "priority": st.none() | st.sampled_from(PRIORITIES),
    "milestone_id": NUMBERS,
    "start_date": OPTIONAL_DATES,
    "due_date": OPTIONAL_DATES,
}
UPDATES = {"title": TITLES, "status": st.sampled_from(STATUSES), "assignee_id": NUMBERS, "metadata": OBJECTS}
NEW_TASK = st.fixed_dictionaries(
    {"title": TITLES}, optional=DETAILS | {name: UPDATES[name] for name in ("assignee_id", "metadata")}
)
REQUIRED: dict[str, dict[str, st.SearchStrategy]] = {
    "project": {"name": TITLES},
    "milestone": {"title": TITLES},
    "whiteboard": {"title": TITLES},
    "meeting": {"title": TITLES, "starts_at": DATES},
}
OPTIONAL: dict[str, dict[str, st.SearchStrategy]] = {
    "project": {"description": TEXTS, "owner_id": NUMBERS},
    "milestone": {"description": TEXTS, "due_date": OPTIONAL_DATES},
    "whiteboard": {"project_id": NUMBERS, "content": OBJECTS},
    "meeting": {
        "description": TEXTS,
        "location": st.none() | TITLES,
        "project_id": NUMBERS,
        "ends_at": OPTIONAL_DATES,
        "participant_ids": st.none() | st.lists(NUMBERS, max_size=3),
    },
}
LOCATED = list(REQUIRED)  # the kinds of things, besides tasks, that have an address of their own
NEW_THING = st.one_of(
    *(
        st.tuples(st.just(kind), st.fixed_dictionaries(REQUIRED[kind], optional=OPTIONAL[kind]))
        for kind in REQUIRED
    )
)
THING_UPDATE = st.one_of(
    *(
        st.tuples(
            st.just(kind),
            st.fixed_dictionaries(
                {},
                optional=REQUIRED[kind]
                | OPTIONAL[kind]
                | ({"status": st.sampled_from(["active", "archived"])} if kind == "project" else {}),
            ),
        )
        for kind in REQUIRED
    )
)
FILTERS: dict[str, st.SearchStrategy] = {
    "project_id": NUMBERS,
    "milestone_id": NUMBERS,
    "assignee_id": NUMBERS,
    "status": st.sampled_from(STATUSES),
    "priority": st.sampled_from(PRIORITIES),
    "due_before": NUMBERS | DATES,  # a number: as a task has it
    "updated_since": NUMBERS,
    "q": st.text(VISIBLE, min_size=1, max_size=2),
    "archived": st.just("false"),
}
SORTS = [
    f"{sign}{name}" for name in ("created_at", "updated_at", "due_date", "priority") for sign in ("", "-")
]


@st.composite
def queries(draw: st.DrawFn) -> Row:
    """A list of tasks with few filters, so that it is not always empty."""
    names = draw(st.lists(st.sampled_from(sorted(FILTERS)), max_size=2, unique=True))
    query = {name: draw(FILTERS[name]) for name in names}
    more = {
        "sort": st.sampled_from(SORTS),
        "limit": st.sampled_from([1, 2, 3, 5, 100]),
        "offset": st.sampled_from([0, 0, 0, 1, 2, 6]),
        "include": st.just("comment_count"),
    }
    return query | draw(st.fixed_dictionaries({}, optional=more))


TEAM = st.sampled_from(["owner", "member"])
ANYBODY = st.sampled_from(["owner", "member", "client"])
# A header If-Match, given the task's version, and whether a change is made.
PRECONDITIONS: dict[str, tuple[str | None, bool]] = {
    "none": (None, True),
    "same": ('"{0}"', True),
    "any": ("*", True),
    "listed": ('"0", "{0}"', True),
    "older": ('"{1}"', False),
    "weak": ('W/"{0}"', False),
    "others": ('"x", "{1}"', False),
}
EXPECTED = st.sampled_from(["none", *PRECONDITIONS])  # twice as often without
WRONG: list[Row] = [{"title": " "}, {"status": "x"}, {"metadata": []}, {"due": "2026-11-20"}]

Edit = tuple[str, int, Row, str]  # a method, a number for the task, a body, a key of `PRECONDITIONS`


def edits_of(fields: dict[str, st.SearchStrategy], *methods: str) -> st.SearchStrategy[list[Edit]]:
    """Some changes of tasks, each with some of these fields."""
    body = st.fixed_dictionaries({}, optional=fields)
    edit = st.tuples(st.sampled_from(methods), NUMBERS, body, EXPECTED)
    return st.lists(edit, min_size=1, max_size=4)
