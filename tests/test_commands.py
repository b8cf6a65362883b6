"""The command line on a real database, and its help."""

import itertools
import os
import re
import shutil
import stat
import subprocess
from datetime import UTC, datetime

import click
import pytest
from harness import BIN, ROOT, Server

from app import create_app
from database import db, prepare


def commands(group=None, path=()):
    """Every command of ours with its words."""
    group = group or create_app().cli
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        elif command.callback.__module__ == "commands" or path:
            yield (*path, name), command


@pytest.fixture
def home(tmp_path):
    """A place where nothing was made yet, and no key is configured."""
    server = Server(tmp_path)
    del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    return server


@pytest.fixture(scope="module")
def initialized(tmp_path_factory):
    """The folder of an empty workspace, and its owner's key."""
    server = Server(tmp_path_factory.mktemp("initialized"))
    del server.environment["TASKS_BOOTSTRAP__API_KEY"]
    key = re.search(r"tms_\S{43}", server.flask("init").stdout)[0]
    return server.folder, key


@pytest.fixture
def made(home, initialized):
    folder, home.key = initialized
    shutil.copytree(folder, home.folder, dirs_exist_ok=True)
    return home


def says(result, code=0):
    """What a command printed; its exit code must be this, and nothing may be a traceback."""
    assert result.returncode == code, result
    assert "Traceback" not in result.stderr
    return result.stdout


def test_every_command_has_help_and_is_in_the_readme():
    listed = {" ".join(words): command for words, command in commands()}
    assert len(listed) > 10
    readme = (ROOT / "README.md").read_text()
    for words, command in listed.items():
        assert command.help, words
        line = command.help.split("\n")[0]
        assert line.endswith("."), words
        assert len(line) < 66, f"{words} is cut off in a terminal of 80 columns"
        assert f"`{words}`" in readme, words
        for parameter in command.params:
            assert isinstance(parameter, click.Argument) or parameter.help or parameter.type.name == "choice"


def test_init_makes_the_database_and_the_owner_and_prints_the_key_once(home):
    said = says(home.flask("init"))
    assert f"The database {home.database} is ready." in said
    assert "Olga Owner <owner@example.com>" in said
    key = re.search(r"API key, shown only now:  (tms_\S{43})\n", said)[1]
    assert f'curl -H "Authorization: Bearer {key}" http://127.0.0.1:8000/api/v1/context' in said
    again = says(home.flask("init"))
    assert "The workspace already has an owner." in again
    assert "tms_" not in again
    home.start()
    assert home.client(key).get("/context").status_code == 200
    home.stop()


def test_init_never_prints_a_key_that_is_given(home):
    home.environment["TASKS_BOOTSTRAP__API_KEY"] = "tms_" + "g" * 43
    said = says(home.flask("init"))
    assert "The first owner has the API key from the configuration." in said
    assert "ggg" not in said
    home.start()
    assert home.client("tms_" + "g" * 43).get("/context").status_code == 200
    home.stop()


def test_the_line_to_try_names_the_port_that_is_chosen(home):
    assert "http://127.0.0.1:8123/api/v1/context" in says(home.flask("init", PORT="8123"))


def test_without_a_database_a_command_says_what_to_run(home):
    assert "Usage:" in says(home.flask("member", "invite", "--help"))
    result = home.flask("member", "list")
    assert says(result, 1) == ""
    said = f"there is no database at {home.database}; `init` makes one, `restore` puts a copy there"
    assert result.stderr == f"Error: {said}\n"
    assert list(home.folder.iterdir()) == []


def test_keys_are_made_listed_and_revoked(made):
    key = says(made.flask("key", "create", "--name", "CI", "--scope", "read", "--days", "1.5")).strip()
    assert re.fullmatch(r"tms_\S{43}", key)
    heading, *rows = says(made.flask("key", "list")).splitlines()
    assert heading.split() == [
        "PREFIX",
        "MEMBER",
        "NAME",
        "SCOPE",
        "CREATED",
        "CREATOR",
        "LAST-USED",
        "EXPIRES",
        "REVOKED",
        "ID",
    ]
    (row,) = [row for row in rows if row.startswith(key[:12])]
    assert " CI " in row
    assert " read " in row
    assert row.count(" owner@example.com ") == 2  # its member, and who made it
    assert key not in "".join(rows)
    assert f"Revoked {key[:12]}" in says(made.flask("key", "revoke", key[:12]))
    result = made.flask("key", "revoke", "nothing")
    says(result, 1)
    assert result.stderr == "Error: no keys have the id or prefix nothing\n"
    wrong = "tms_0000" + "x" * 39
    assert wrong not in made.flask("key", "revoke", wrong).stderr  # it may be somebody's elsewhere
    says(made.flask("key", "revoke", key))
    result = made.flask("key", "create", "--member", "nobody@example.com")
    assert (says(result, 1), result.stderr) == ("", "Error: no active member nobody@example.com\n")


def test_a_change_is_the_first_owners_or_that_of_whom_one_acts_as(made):
    made.start()
    link = says(made.flask("member", "invite", "ana@example.com", "Ana Lima")).strip()
    assert made.client(None).post(f"/enroll/{link.rpartition('/')[2]}").status_code == 201
    says(made.flask("key", "create", "--member", "ana@example.com", "--name", "CI"))
    says(made.flask("key", "create", "--as", "ana@example.com", "--member", "ana@example.com"))
    made.stop()
    recorded = made.rows(
        "SELECT email, entity_id = actor_id AS own FROM activity JOIN member ON member.id = actor_id "
        "WHERE changes LIKE '%api_key%' ORDER BY activity.id"
    )
    assert recorded == [{"email": "owner@example.com", "own": 0}, {"email": "ana@example.com", "own": 1}]
    result = made.flask("key", "create", "--as", "ana@example.com")
    assert "only an owner manages the keys of this owner" in result.stderr
    says(result, 1)


def test_whom_one_acts_as_may_do_no_more_than_over_the_api(made):
    made.start()
    for email, role in (("ana@example.com", "member"), ("carl@example.com", "client")):
        link = says(made.flask("member", "invite", email, "X", "--role", role)).strip()
        assert made.client(None).post(f"/enroll/{link.rpartition('/')[2]}").status_code == 201
    made.stop()
    result = made.flask("member", "invite", "zoe@example.com", "Zoe", "--as", "ana@example.com")
    assert "your role is member; this takes owner or admin" in result.stderr
    says(result, 1)
    says(made.flask("project", "create", "Hers", "--as", "ana@example.com"))
    result = made.flask("project", "create", "His", "--as", "carl@example.com")
    assert "your role is client" in result.stderr
    says(result, 1)


def test_members_are_invited_and_listed(made):
    result = made.flask("member", "invite", "ana@example.com", "Ana Lima", "--role", "admin")
    link = says(result).strip()
    assert link.startswith("http://127.0.0.1:8000/enroll/")
    made.start()
    joined = made.client(None).post(f"/enroll/{link.rpartition('/')[2]}")
    assert joined.status_code == 201
    made.stop()
    heading, *rows = says(made.flask("member", "list")).splitlines()
    assert heading.split() == ["NAME", "EMAIL", "ROLE", "STATUS", "JOINED", "ID"]
    assert re.search(r"Ana Lima +ana@example.com +admin +active", rows[0])
    result = made.flask("member", "invite", "ana@example.com", "Ana")
    says(result, 1)
    assert result.stderr == "Error: ana@example.com is already a member\n"
    result = made.flask("member", "invite", "nobody", "N")
    says(result, 2)
    assert "email: must be an e-mail address" in result.stderr
    result = made.flask(
        "member", "invite", "o@example.com", "O", "--role", "owner", "--as", "ana@example.com"
    )
    says(result, 1)
    assert result.stderr == "Error: only an owner may invite an owner\n"


def test_projects_are_made_and_listed(made):
    id = says(made.flask("project", "create", "Website", "--description", "All of it")).strip()
    heading, row = says(made.flask("project", "list")).splitlines()
    assert heading.split() == ["NAME", "STATUS", "TASKS", "DONE", "OVERDUE", "OWNER", "ID"]
    assert row.split() == ["Website", "active", "0", "0", "0", "owner@example.com", id]
    result = made.flask("project", "create", " ")
    says(result, 2)
    assert "name: must not be blank" in result.stderr


def test_an_unknown_command_or_option_is_said(made):
    for words in (
        ["nothing"],
        ["key", "nothing"],
        ["seed", "--colour", "blue"],
        ["key", "create", "--scope", "x"],
        ["key", "create", "--days", "nan"],
    ):
        result = made.flask(*words)
        says(result, 2)
        assert "Error:" in result.stderr


def test_the_help_names_every_command(made):
    said = says(made.flask("--help"))
    for words, _ in commands():
        assert f"  {words[0]} " in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize(("owner", "name"), [("nobody", "nobody"), (54321, "'#54321'")])
def test_root_makes_no_file_that_the_user_of_the_service_cannot_open(home, owner, name):
    shutil.chown(home.folder, owner)
    copy = home.folder / "copy.db"
    copy.touch()
    for words in (["init"], ["restore", str(copy)], ["member", "list"], ["doctor"]):
        result = home.flask(*words)
        says(result, 1)
        said = f"{home.folder} belongs to another user; run this command as that user: sudo -u {name}"
        assert result.stderr == f"Error: {said}\n"
    assert list(home.folder.iterdir()) == [copy]


# doctor


def test_doctor_finds_nothing_wrong_with_a_new_database(made):
    said = says(made.flask("doctor"))
    assert "are in order" in said


def test_doctor_misses_the_triggers_that_count_tasks(made):
    made.rows("DROP TRIGGER task_count_delete")
    assert "the trigger task_count_delete is missing or another one" in says(made.flask("doctor"), 1)


def test_doctor_finds_a_file_that_others_can_read(made):
    made.database.chmod(0o644)
    assert "can be read by others; chmod 600 it" in says(made.flask("doctor"), 1)


def test_doctor_finds_what_refers_to_nothing(made):
    at = "2026-01-01T00:00:00.000Z"
    made.rows(
        "INSERT INTO comment (id, task_id, author_id, content, created_at) VALUES ('c', 't', 'm', 'x', ?)", at
    )
    assert "a row of comment refers to a task that is gone" in says(made.flask("doctor"), 1)


def test_doctor_prints_equal_problems_once_with_their_number(made):
    row = "INSERT INTO comment (id, task_id, author_id, content, created_at) VALUES (?, 't', 'm', 'x', '')"
    for number in range(100):
        made.rows(row, str(number))
    lines = says(made.flask("doctor"), 1).splitlines()
    (line,) = [line for line in lines if "refers to a task" in line]
    assert line.startswith("problem: a row of comment refers to a task that is gone; restore a backup, or")
    assert line.endswith(" (100 times)")


def test_doctor_misses_indexes_and_says_how_to_make_them(made):
    made.rows("DROP INDEX task_due")
    made.rows("DROP INDEX activity_task")
    said = says(made.flask("doctor"), 1)
    made_again = re.findall("problem: the index (.*) is missing .*; execute in sqlite3: (.*)", said)
    assert [name for name, _ in made_again] == ["activity_task", "task_due"]
    for _, statement in made_again:
        made.rows(statement)
    says(made.flask("doctor"))


def test_doctor_says_how_to_replace_an_index_that_is_another_one(made):
    (before,) = made.rows("SELECT sql FROM sqlite_master WHERE name = 'member_email'")
    made.rows("DROP INDEX member_email")
    made.rows("CREATE INDEX member_email ON member (email)")
    (drop, create) = re.search("execute in sqlite3: (.*); (.*)", says(made.flask("doctor"), 1)).groups()
    made.rows(drop)
    made.rows(create)
    assert made.rows("SELECT sql FROM sqlite_master WHERE name = 'member_email'") == [before]
    says(made.flask("doctor"))


def test_init_beside_a_member_with_the_owners_address_is_refused_in_one_line(made):
    made.rows("UPDATE member SET role = 'member'")
    result = made.flask("init")
    says(result, 1)
    assert result.stderr == "Error: email: is already a member's\n"


def test_doctor_misses_the_contents_of_attachments(made):
    says(made.flask("seed"))
    first, second = made.rows("SELECT attachment_id AS id FROM attachment_content LIMIT 2")
    made.rows("DELETE FROM attachment_content WHERE attachment_id = ?", first["id"])
    made.rows("UPDATE attachment_content SET data = x'00' WHERE attachment_id = ?", second["id"])
    said = says(made.flask("doctor"), 1)
    assert "problem: attachments without all of their content: 2; restore a backup\n" in said


def is_missing(server):
    server.database.unlink()


def is_empty(server):
    server.database.write_bytes(b"")


def lacks_a_table(server):
    server.rows("DROP TABLE comment")


def is_empty_beside_its_log(server):
    server.database.write_bytes(b"")
    server.database.with_name("tasks.db-wal").write_bytes(b"a log")


def is_cut_off(server):
    os.truncate(server.database, server.database.stat().st_size // 2)


def is_text(server):
    server.database.write_text("no database " * 1000)


def has_a_page_of_nonsense(server):
    (index,) = server.rows("SELECT rootpage FROM sqlite_master WHERE name = 'comment_task'")
    content, end = bytearray(server.database.read_bytes()), index["rootpage"] * 4096
    content[end - 4096 : end] = b"\xff" * 4096
    server.database.write_bytes(content)


def is_newer(server):
    server.rows("INSERT INTO schema_migration (name, applied) VALUES ('9999_newer', '2026-01-01')")


def is_older(server):
    server.rows("DELETE FROM schema_migration WHERE name LIKE '0008%'")


@pytest.mark.parametrize(
    ("spoil", "what", "helps"),
    [
        (is_missing, "Error: there is no database at", "`init` makes one, `restore` puts a copy there"),
        (is_empty_beside_its_log, "tasks.db is empty, but its log", "put the database back beside it"),
        (is_cut_off, "cannot be read (database disk image is malformed)", "; restore a backup"),
        (is_text, "cannot be read (file is not a database)", "; restore a backup"),
        (has_a_page_of_nonsense, "problem: the database is damaged: ", "; restore a backup"),
        (is_empty, "there is no database at", "`restore` puts a copy there"),
        (lacks_a_table, "problem: the table comment is missing", "; restore a backup"),
        (is_newer, "was made by a newer version, which applied 9999_newer", "; install that one"),
        (is_older, "is of an older version", "; start the server, which upgrades it"),
    ],
)
def test_doctor_says_of_each_kind_of_damage_what_helps(made, spoil, what, helps):
    made.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    spoil(made)
    result = made.flask("doctor")
    lines = (says(result, 1) + result.stderr).splitlines()
    assert [line for line in lines if what in line and helps in line]
    for line in lines:
        assert re.match("problem: |note: |Error: ", line)


def test_doctor_on_a_full_disk_does_not_advise_to_restore_a_backup(made):
    command = [BIN / "flask", "--app", "app", "doctor"]
    full = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command]  # no file may have more than a block
    environment = made.environment | {"PYTHONDONTWRITEBYTECODE": "1"}  # half of a module's would be written
    done = subprocess.run(full, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "problem: the database cannot be read (" in says(done, 1)
    assert "; see that its disk has space, and that you may open it" in done.stdout
    assert "restore" not in done.stdout


def test_doctor_cannot_judge_secrets_of_the_services_environment(made, tmp_path):
    text = """
        [plugins.entries.webhooks.config.routes.a]
        sessionKey = "agent:a"
        secret = "$OF_THE_SERVICE"
        [[webhooks]]
        name = "one"
        url = "http://127.0.0.1:1/"
        secret = "$OF_THE_SERVICE"
    """
    (tmp_path / "config.toml").write_text(text)
    said = says(made.flask("doctor", TASKS_CONFIG=str(tmp_path / "config.toml")))
    unset = "env:default:OF_THE_SERVICE: the environment variable is not set here; the service may have it"
    assert "route a: /plugins/webhooks/a for agent:a: unknown\n" in said
    assert f"note: route a: its secret: {unset}\n" in said
    assert f"note: webhooks: one: secret: {unset}\n" in said
    assert "in order" in said
    missing = '[[webhooks]]\nname = "two"\nurl = "http://127.0.0.1:1/"\n'
    missing += 'secret = { source = "file", provider = "vault", id = "value" }\n'
    (tmp_path / "config.toml").write_text(text + missing)
    said = says(made.flask("doctor", TASKS_CONFIG=str(tmp_path / "config.toml")), 1)
    assert f"note: webhooks: one: secret: {unset}\n" in said
    assert "problem: webhooks: two: secret: file:vault:value: there is no provider vault" in said


def test_doctor_tells_of_each_route_of_the_gateway(made, tmp_path):
    vault = tmp_path / "vault.json"
    vault.touch(0o640)
    (tmp_path / "config.toml").write_text(
        f"[secrets.providers.vault]\nsource = 'file'\npath = '{vault}'\n"
        "[plugins.entries.webhooks.config.routes.good]\nsessionKey = 'agent:a'\nsecret = 'S3CRET-VALUE'\n"
        "[plugins.entries.webhooks.config.routes.bad]\nsessionKey = 'agent:b'\n"
        "secret = { source = 'file', provider = 'vault', id = '/b' }\n"
    )
    result = made.flask("doctor", TASKS_CONFIG=str(tmp_path / "config.toml"))
    said = says(result, 1)
    assert "route good: /plugins/webhooks/good for agent:a: served" in said
    assert "route bad: /plugins/webhooks/bad for agent:b: skipped" in said
    assert "problem: route bad is skipped: its secret: file:vault:/b: " in said
    assert f"provider vault: {vault}: -rw-r-----" in said
    assert "S3CRET-VALUE" not in said


# seed


def dump(server):
    """What the seed made, but for what is random by intention or says when it ran."""
    server.rows("DELETE FROM api_key")
    return {
        table: server.rows(f"SELECT * FROM {table} ORDER BY id")  # noqa: S608
        for table in ("task", "comment", "milestone", "meeting", "whiteboard", "attachment")
    }


def test_seed_fills_a_believable_workspace(made):
    said = says(made.flask("seed"))
    assert "200 tasks" in said
    counts = {
        table: made.rows(f"SELECT count(*) AS n FROM {table}")[0]["n"]  # noqa: S608
        for table in (
            "member",
            "project",
            "milestone",
            "task",
            "comment",
            "meeting",
            "whiteboard",
            "attachment",
        )
    }
    assert counts["task"] == 200
    assert all(counts[table] > 4 for table in counts)
    roles = {row["role"] for row in made.rows("SELECT role FROM member")}
    assert roles == {"owner", "admin", "member", "client"}
    assert {row["status"] for row in made.rows("SELECT status FROM member")} == {"active", "invited"}
    assert len(made.rows("SELECT DISTINCT status FROM task")) == 4
    made.start()
    owner = made.client(made.key)
    data = owner.data(owner.get("/context"))
    assert len(data["urgent_tasks"]) == 10
    assert len(data["recent_activity"]) == 5
    assert len(data["whiteboards"]) == 10
    meetings = owner.data(owner.get("/meetings"))["meetings"]
    assert {meeting["when"] for meeting in meetings} == {"past", "upcoming"}
    titles = [task["title"] for task in owner.data(owner.get("/tasks", limit=100))["tasks"]]
    assert len(set(titles)) > 30
    made.stop()
    says(made.flask("doctor"))


def test_seed_makes_the_same_for_the_same_seed(tmp_path):
    numbers = itertools.count()

    def seeded(seed):
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        server = Server(folder)
        server.flask("init")
        says(server.flask("seed", "--tasks", "60", "--seed", str(seed)))
        rows = dump(server)
        tasks = [(row["id"], row["title"], row["status"]) for row in rows["task"]]
        return tasks + [row["content"] for row in rows["comment"]]

    day, dumps = None, []
    while day != datetime.now(UTC).date():  # ids tell the day, which may have ended meanwhile
        day = datetime.now(UTC).date()
        dumps = [seeded(7), seeded(7), seeded(8)]
    assert dumps[0] == dumps[1]
    assert dumps[0] != dumps[2]


def test_seed_needs_an_empty_workspace(made):
    says(made.flask("project", "create", "Mine"))
    result = made.flask("seed")
    says(result, 1)
    assert result.stderr == "Error: the workspace has projects already; seed an empty one\n"


# files


def test_the_database_and_its_folder_are_the_owners_alone(home):
    home.flask("init")
    home.start()
    owner = stat.S_IRUSR | stat.S_IWUSR
    for path in home.database.parent.iterdir():
        if path.name.endswith((".db", "-wal", "-shm")):
            assert stat.S_IMODE(path.stat().st_mode) == owner, path
    assert stat.S_IMODE(home.database.parent.stat().st_mode) == 0o700
    home.stop()


def test_the_command_line_starts_without_a_database_or_secrets(tmp_path):
    environment = {"PATH": str(BIN), "TASKS_WEBHOOKS": '[{"url": "http://a/", "secret": "$NOT_SET"}]'}
    result = subprocess.run(
        [BIN / "flask", "--app", "app", "--help"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert "doctor" in says(result)


def test_a_database_that_cannot_be_read_is_one_line(made):
    for suffix in ("-wal", "-shm"):
        made.database.with_name(f"tasks.db{suffix}").unlink(missing_ok=True)
    made.database.write_bytes(b"no database " * 1000)
    for words in (["key", "list"], ["member", "list"], ["deliver"], ["seed"], ["project", "create", "x"]):
        result = made.flask(*words)
        says(result, 1)
        assert result.stderr == f"Error: {made.database}: file is not a database\n"
    assert "problem: the database cannot be read (file is not a database)" in says(made.flask("doctor"), 1)


def test_doctor_misses_an_owner(home):
    db.init(str(home.database))
    prepare()
    db.disconnect()
    assert "problem: there is no owner yet; run: flask --app app init" in says(home.flask("doctor"), 1)
