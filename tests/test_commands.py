"""The command line on a real database, and its help."""

import os
import re
import resource
import shutil
import stat
import subprocess
from functools import partial
from types import SimpleNamespace

import click
import pytest
from damage import cut_off, delete, empty, make_newer, write_text
from forks import running
from harness import BIN, PATIENCE, ROOT, Server, invoke
from older import older_database, versions

from app import create_app


def commands(group=None, path=()):
    """Every command of ours with its words."""
    group = group or create_app().cli
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command.callback.__module__ == "commands" or path:
            yield (*path, name), command


def new_home(folder):
    """A place where nothing was made yet, and no key is configured."""
    server = Server(folder)
    del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    return server


@pytest.fixture
def home(tmp_path):
    yield (server := new_home(tmp_path))
    server.stop()


@pytest.fixture(scope="module")
def initialized(tmp_path_factory):
    """The folder of an empty workspace, and its owner's key."""
    server = new_home(tmp_path_factory.mktemp("initialized"))
    return server.folder, re.search(r"tms_\S{43}", says(server, "init"))[0]


@pytest.fixture
def made(home, initialized):
    folder, home.key = initialized
    shutil.copytree(folder, home.folder, dirs_exist_ok=True)
    return home


def says(server, *words, code=0, **environment):
    """Return a command's output; its exit code must be `code`."""
    result = invoke(server, *words, **environment)
    assert result.exit_code == code, result.output
    return result.stdout


def refusal(server, *words, code=1):
    """Return the error of a command that does nothing."""
    result = invoke(server, *words)
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr


def test_every_command_has_help_and_is_in_its_page():
    listed = {" ".join(words): command for words, command in commands()}
    assert len(listed) > 10
    page = (ROOT / "docs" / "commands.md").read_text()
    for words, command in listed.items():
        assert command.help, words
        line = command.help.split("\n")[0]
        assert line.endswith("."), words
        assert len(line) < 66, f"{words} is cut off in a terminal of 80 columns"
        assert f"`{words}`" in page, words
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help or parameter.type.name == "choice"


def test_the_program_calls_itself_as_the_documentation_does(tmp_path):
    older_database(tmp_path / "old" / "tasks.db", versions()[-1], rows=0)
    environment = {"TASKS_CONFIG": os.devnull, "TASKS_SERVER__DATABASE": str(tmp_path / "old" / "tasks.db")}
    options = {"cwd": ROOT, "env": os.environ | environment, "capture_output": True, "text": True}
    printed = {}
    for words in (["member", "add", "--help"], ["init"], ["init"]):
        done = subprocess.run([BIN / "tasks", "--app", "app", *words], **options, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        printed[words[0]] = printed.get(words[0], "") + done.stdout + done.stderr
    assert printed["member"].startswith("Usage: tasks member add ")
    assert "get a link:  tasks member link" in printed["init"]
    assert re.search(r"The database is copied to .*\.before-0.*\n.* is upgraded by ", printed["init"])


LINK = r"http://127\.0\.0\.1:8000/enroll/([\w-]{43})"


def test_init_makes_the_database_and_the_owner_and_prints_the_link_and_the_key_once(home, monkeypatch):
    said = says(home, "init", PORT="8123")
    assert f"The database {home.database} is ready." in said
    assert "Olga Owner <owner@example.com>" in said
    link, key = re.search(r"within a day:  (\S+)\n\n.*:  (tms_\S{43})\n", said).groups()
    assert link.startswith("http://127.0.0.1:8123/enroll/")
    assert f'curl -H "Authorization: Bearer {key}" http://127.0.0.1:8123/api/v1/context' in said
    again = says(home, "init")
    assert "The workspace already has an owner." in again
    assert "flask --app app member link owner@example.com" in again
    monkeypatch.setattr("settings.program", "tasks")
    assert "link:  PORT=8123 tasks member link owner@example.com" in says(home, "init", PORT="8123")
    assert "tms_" not in again
    assert "/enroll/" not in again
    owner = home.start().client(key)
    used = owner.data(home.client(None).post(f"/enroll/{link.rpartition('/')[2]}"), 201)
    assert owner.read("/me")["member"] == used["member"]
    folder = home.database.parent
    files = [folder, *(path for path in folder.iterdir() if path.name.endswith((".db", "-wal", "-shm")))]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o700, 0o600, 0o600, 0o600]


def test_without_a_database_or_secrets_a_command_says_what_to_run_and_init_prints_no_key_it_is_given(home):
    assert "Usage:" in says(home, "member", "invite", "--help")
    said = f"there is no database at {home.database}; `init` makes one, `restore` puts a copy there"
    assert refusal(home, "member", "list") == f"Error: {said}\n"
    assert list(home.folder.iterdir()) == []
    said = says(home, "init", TASKS_BOOTSTRAP__API_KEY="tms_" + "g" * 43)
    assert "The first owner has the API key from the configuration." in said
    assert re.search(LINK, said) and "ggg" not in said
    assert home.rows("SELECT prefix FROM api_key") == [{"prefix": "tms_gggggggg"}]
    home.environment = {"TASKS_WEBHOOKS": '[{"url": "http://a/", "secret": "$NOT_SET"}]'}
    assert "doctor" in says(home, "--help")


def test_keys_are_made_listed_and_revoked(made):
    key = says(made, "key", "create", "--name", "CI", "--scope", "read", "--days", "1.5").strip()
    assert re.fullmatch(r"tms_\S{43}", key)
    heading, *rows = says(made, "key", "list").splitlines()
    named = "PREFIX MEMBER NAME SCOPE CREATED CREATOR LAST-USED EXPIRES REVOKED ID"
    assert heading.split() == named.split()
    (row,) = [row.split() for row in rows if row.startswith(key[:12])]
    assert row[1:4] == ["owner@example.com", "CI", "read"]
    assert row.count("owner@example.com") == 2  # its member, and who made it
    assert key not in "".join(rows)
    assert f"Revoked {key[:12]}" in says(made, "key", "revoke", key[:12])
    refused = refusal(made, "key", "revoke", "nothing")
    assert refused.startswith("Error: no keys have the id or prefix nothing; see: ")
    wrong = "tms_0000" + "x" * 39
    assert wrong not in refusal(made, "key", "revoke", wrong)  # it may be somebody's elsewhere
    says(made, "key", "revoke", key)
    said = refusal(made, "key", "create", "--member", "nobody@example.com")
    assert said == "Error: no active member nobody@example.com\n"
    assert "--days must be a number" in refusal(made, "key", "create", "--days", "nan", code=2)


def test_a_change_is_the_first_owners_or_that_of_whom_one_acts_as_who_may_do_no_more_than_over_the_api(made):
    for name, role in (("ana", "member"), ("carl", "client"), ("adam", "admin")):
        says(made, "member", "invite", f"{name}@example.com", "X", "--role", role)
    made.rows("UPDATE member SET status = 'active'")  # they have joined
    says(made, "key", "create", "--member", "ana@example.com", "--name", "CI")
    says(made, "key", "create", "--as", "ana@example.com", "--member", "ana@example.com")
    recorded = made.rows(
        "SELECT email, entity_id = actor_id AS own FROM activity JOIN member ON member.id = actor_id "
        "WHERE changes LIKE '%api_key%' ORDER BY activity.id"
    )
    assert recorded == [{"email": "owner@example.com", "own": 0}, {"email": "ana@example.com", "own": 1}]
    said = refusal(made, "key", "create", "--as", "ana@example.com", code=2)
    assert "give the key's member with --member" in said
    said = refusal(made, "member", "invite", "zoe@example.com", "Zoe", "--as", "ana@example.com")
    assert "your role is member; this requires the role admin or owner" in said
    says(made, "project", "create", "Hers", "--as", "ana@example.com")
    said = refusal(made, "project", "create", "His", "--as", "carl@example.com")
    assert "your role is client; this requires the role member, admin or owner" in said
    owner = ("member", "invite", "o@example.com", "O", "--role", "owner", "--as", "adam@example.com")
    assert refusal(made, *owner) == "Error: only an owner may invite an owner\n"
    made.rows("UPDATE member SET role = 'member'")
    assert refusal(made, "init") == "Error: email: is already a member's\n"


def test_members_are_invited_and_listed_and_a_link_is_printed_for_who_has_joined_or_is_invited(made):
    invited = says(made, "member", "invite", "ana@example.com", "Ana Lima", "--role", "admin")
    assert re.fullmatch(f"{LINK}\n", invited)
    stranger = made.start().client(None)
    for name in ("enrollment", "sign-in link"):
        token = re.fullmatch(f"{LINK}\n", says(made, "member", "link", " ANA@example.com"))[1]
        assert made.client(stranger.make(f"/enroll/{token}")["api_key"]).read("/me")["key"]["name"] == name
    assert refusal(made, "member", "link", "b@example.com") == "Error: no member b@example.com\n"
    said = refusal(made, "member", "link", "owner@example.com", "--as", "ana@example.com")
    assert "only an owner manages the invitations of this owner" in said
    heading, *rows = says(made, "member", "list").splitlines()
    assert heading.split() == ["NAME", "EMAIL", "ROLE", "STATUS", "JOINED", "ID"]
    assert re.search(r"Ana Lima +ana@example.com +admin +active", rows[0])
    said = refusal(made, "member", "invite", "ana@example.com", "Ana")
    assert said == "Error: ana@example.com is already a member\n"
    assert "email: must be an e-mail address" in refusal(made, "member", "invite", "nobody", "N", code=2)


def test_projects_are_made_and_listed(made):
    id = says(made, "project", "create", "Website", "--description", "All of it").strip()
    heading, row = says(made, "project", "list").splitlines()
    assert heading.split() == ["NAME", "STATUS", "TASKS", "DONE", "OVERDUE", "OWNER", "ID"]
    assert row.split() == ["Website", "active", "0", "0", "0", "owner@example.com", id]
    assert "name: must not be blank" in refusal(made, "project", "create", " ", code=2)
    assert refusal(made, "seed") == "Error: the workspace already has projects; seed an empty one\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_root_makes_no_file_that_the_user_of_the_service_cannot_open(home):
    (copy := home.folder / "copy.db").touch()
    for owner, name in (("nobody", "nobody"), (54321, "'#54321'")):
        shutil.chown(home.folder, owner)
        said = f"{home.folder} belongs to another user; run this command with sudo -u {name}"
        for words in (["init"], ["restore", copy], ["member", "list"], ["doctor"]):
            assert refusal(home, *words) == f"Error: {said}\n"
    assert list(home.folder.iterdir()) == [copy]


# doctor


def empty_beside_its_log(path):
    empty(path)
    path.with_name("tasks.db-wal").write_bytes(b"a log")


OLDER = "DELETE FROM schema_migration WHERE name LIKE '0008%'"
ORPHANS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
INSERT INTO comment (id, task_id, author_id, content, created_at) SELECT i, 't', 'm', 'x', '' FROM n
"""


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        *(
            (spoil, "Error: there is no database at .*; `init` makes one, `restore`")
            for spoil in (delete, empty)
        ),
        (empty_beside_its_log, "tasks.db is empty, but its log .* put the database back beside it"),
        (cut_off, r"cannot be read \(database disk image is malformed\); restore a backup"),
        (write_text, r"cannot be read \(file is not a database\); restore a backup"),
        ("DROP TABLE comment", "problem: the table comment is missing.*; restore a backup"),
        (make_newer, "was made by a newer version, which applied 9999_newer; install that one"),
        (OLDER, "is of an older version.*; start the server, which upgrades it"),
        ("DROP TRIGGER task_count_delete", "the trigger task_count_delete is missing or another one"),
        (ORPHANS, r"a row of comment refers to a task that is gone; restore a backup, or .*\(100 times\)"),
        ("UPDATE member SET role = 'member'", "there is no owner yet; run: flask --app app init"),
        (lambda path: path.chmod(0o644), r"tasks\.db: others can read it; run chmod 600"),
    ],
)
def test_doctor_says_of_each_kind_of_damage_what_helps(made, spoil, said):
    made.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    made.rows(spoil) if isinstance(spoil, str) else spoil(made.database)
    result = invoke(made, "doctor")
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert len([line for line in lines if re.search(said, line)]) == 1
    for line in lines:
        assert re.match("problem: |note: |Error: ", line)


def test_doctor_says_how_to_make_missing_indexes_and_to_replace_one_that_is_another(made):
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
    before = made.rows(query)
    for name in ("task_due", "activity_task", "member_email"):
        made.rows(f"DROP INDEX {name}")
    made.rows("CREATE INDEX member_email ON member (email)")
    said = says(made, "doctor", code=1)
    remedies = re.findall("problem: the index (.*) is .*; execute in sqlite3: (.*)", said)
    assert sorted(name for name, _ in remedies) == ["activity_task", "member_email", "task_due"]
    for _, statements in remedies:
        for statement in statements.split("; "):
            made.rows(statement)
    assert made.rows(query) == before
    assert "are in order" in says(made, "doctor")


def on_a_full_disk(server, *words):
    """Return what the command says on both outputs where no file may have more than a block."""
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (512, 512))
    with running(["flask", "--app", "app", *words], ROOT, server.environment, small) as process:
        said = process.stdout.read(), process.stderr.read()
        assert process.wait(PATIENCE) == 1
    return said


def test_a_full_disk_is_named_by_each_command_and_doctor_advises_no_restore(made, tmp_path, monkeypatch):
    for server, command in ((new_home(tmp_path / "new"), "init"), (made, "seed")):
        _, said = on_a_full_disk(server, command)
        assert re.fullmatch("Error: .*; see that its disk has space\n", said)
    said, _ = on_a_full_disk(made, "doctor")
    assert "problem: the database cannot be read (" in said
    assert "; check the space on its disk, and your permissions" in said
    assert "restore" not in said
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2**20))
    assert " has 1 MiB left; free some, or writes will fail\n" in says(made, "doctor", code=1)


ROUTE = "[plugins.entries.webhooks.config.routes.{0}]\nsessionKey = 'agent:{0}'\nsecret = {1}\n"
WEBHOOK = "[[webhooks]]\nname = '{}'\nurl = 'http://127.0.0.1:1/'\nsecret = {}\n"
IN_VAULT = "{ source = 'file', provider = 'vault', id = '/b' }"


def doctor_of(server, config, code=0):
    path = server.folder / "config.toml"
    path.write_text(config)
    return says(server, "doctor", code=code, TASKS_CONFIG=str(path))


def test_doctor_cannot_judge_secrets_of_the_services_environment(made):
    given = "'$OF_THE_SERVICE'"
    text = ROUTE.format("a", given) + WEBHOOK.format("one", given)
    unset = "env:default:OF_THE_SERVICE: the environment variable is not set here; the service may have it"
    said, worse = doctor_of(made, text), doctor_of(made, text + WEBHOOK.format("two", IN_VAULT), code=1)
    assert "route a: /plugins/webhooks/a for agent:a: unknown\n" in said
    assert f"note: route a: its secret: {unset}\n" in said
    for each in (said, worse):
        assert f"note: webhooks: one: secret: {unset}\n" in each
    assert "in order" in said
    assert "problem: webhooks: two: secret: file:vault:/b: there is no provider vault" in worse


def test_doctor_tells_of_each_route_of_the_gateway(made, tmp_path):
    (vault := tmp_path / "vault.json").touch(0o640)
    config = f"[secrets.providers.vault]\nsource = 'file'\npath = '{vault}'\n"
    config += ROUTE.format("good", "'S3CRET-VALUE'") + ROUTE.format("bad", IN_VAULT)
    said = doctor_of(made, config, code=1)
    assert "route good: /plugins/webhooks/good for agent:good: served" in said
    assert "route bad: /plugins/webhooks/bad for agent:bad: skipped" in said
    refused = f"{vault} must belong to the current user, without access for others (chmod 600)"
    assert f"problem: route bad is skipped: its secret: file:vault:/b: {refused}\n" in said
    assert "S3CRET-VALUE" not in said


# seed


def test_seed_fills_a_believable_workspace(made):
    assert "200 tasks" in says(made, "seed")

    def distinct(table, column="id"):
        return {row[column] for row in made.rows(f"SELECT {column} FROM {table}")}

    assert len(distinct("task")) == 200
    for table in ("member", "project", "milestone", "comment", "meeting", "whiteboard", "attachment"):
        assert len(distinct(table)) > 4, table
    assert distinct("member", "role") == {"owner", "admin", "member", "client"}
    assert distinct("member", "status") == {"active", "invited"}
    assert len(distinct("task", "status")) == 4
    assert len(distinct("task", "title")) > 30
    owner = made.start().client(made.key)
    data = owner.read("/context")
    assert [len(data[name]) for name in ("urgent_tasks", "recent_activity", "whiteboards")] == [10, 5, 10]
    clients = [row for row in owner.read("/members")["members"] if row["role"] == "client"]
    assert [len(row["project_ids"] or "every") for row in clients] == [5, 1]
    assert {meeting["when"] for meeting in owner.read("/meetings")["meetings"]} == {"past", "upcoming"}


def test_seed_makes_another_workspace_for_another_seed(tmp_path):
    def seeded(name, seed):
        server = Server(tmp_path / name)
        says(server, "init")
        says(server, "seed", "--tasks", "60", "--seed", seed, "--today", "2026-01-05")
        tasks = server.rows("SELECT title, status FROM task ORDER BY number")
        return tasks + server.rows("SELECT content FROM comment ORDER BY content")

    assert seeded("first", 7) != seeded("other", 8)


def test_a_client_is_invited_to_some_projects_and_doctor_names_the_clients_who_see_all(made):
    for name in ("Website", "Shop", "Twice", "Twice"):
        says(made, "project", "create", name)
    invite = ("member", "invite", "carla@example.com", "Carla", "--role", "client")
    says(made, *invite, "--project", "Website", "--project", "Shop")
    ids = {row["id"] for row in made.rows("SELECT id FROM project WHERE name IN ('Website', 'Shop')")}
    (carla,) = made.rows("SELECT * FROM member WHERE full_name = 'Carla'")
    assert len(ids) == 2
    assert all(id in carla["project_ids"] for id in ids)
    says(made, "member", "invite", "clive@example.com", "Clive", "--role", "client")
    assert "2 projects have the id or name Twice" in refusal(made, *invite, "--project", "Twice")
    assert "no projects have the id or name Nowhere" in refusal(made, *invite, "--project", "Nowhere")
    (all_seeing,) = re.findall("(.*) is a client and sees all projects", invoke(made, "doctor").output)
    assert all_seeing.endswith(" clive@example.com")
