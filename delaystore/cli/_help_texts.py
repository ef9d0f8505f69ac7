"""The words of `--help` that are not beside an option: sections, examples, exit codes, topics."""

from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, str]] = {
    "Get started": "demo setup send",
    "Waiting messages": "list show count cancel reschedule export receive",
    "Failed messages": "errors",
    "Destinations": "destinations pause resume limit",
    "Recurring schedules": "schedules",
    "Run": "serve dispatch ingress control web",
    "Monitor": "status health endpoints operations loads changes history",
    "Move data": "load migrate cascade",
}
"""The sections of `delaystore --help`, with their commands."""
LEARN_MORE: Final = (
    ("delaystore COMMAND --help", "Explain a command"),
    ("delaystore help environment", "Set options by environment variables"),
    ("delaystore help TOPIC", "Explain exit-codes, times, filters or common"),
)
COMMON: Final = (
    "--store",
    "--endpoint",
    "--schema",
    "--table",
    "--transport",
    "--broker",
    "--management",
    "--json",
    "--help",
)
"""Options that `delaystore help common` explains, in its order."""
OWN: Final[Mapping[str, str]] = {
    "web": "--management",
    **dict.fromkeys(
        (
            "migrate preview",
            "migrate run",
            "migrate status",
            "migrate abort",
            "migrate verify",
            "migrate cleanup",
            "migrate schedules",
        ),
        "--endpoint",
    ),
}
"""Options of `COMMON` that mean something else to a command."""
FILTERS: Final = (
    "--destination",
    "--due-after",
    "--due-before",
    "--id-prefix",
    "--load",
    "--header",
    "--failing",
    "--paused",
)
_FILTERS: Final = " ".join(FILTERS)
_ERROR_FILTERS: Final = "--destination --kind --reason --failed-after --failed-before"
_MIGRATION: Final = "--from --to --endpoint --all-endpoints --due-after"
_MOVE: Final = "--due-from --routing --poison-queue --max-rate --target-timeout --dry-run"

SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "send": {
        "When": "--delay --at --not-after --max-late",
        "Message": "--header --headers-json --property --message-id --if-delivered --body-file --json-body",
        "Key": "--key --on-key --max-wait",
        "Control": "--native --create --actor",
        "File": "--file --sheet",
    },
    "load": {
        "Rows": "--map --destination --format --separator --unknown-columns --time-zone --zone-column --ambiguous-time",
        "Due times": "--spread --ramp --window",
        "Ids and keys": "--load-id --id-columns --on-duplicate --if-delivered --key-column --on-key --max-wait",
        "Control": "--rejects-dir --max-rows-per-second --dry-run --preview --plot --cleanup --create --again",
        "Spark": "--master --conf --spark-log",
    },
    "dispatch": {
        "Delivery": "--once --batch-size --number-of-retries --error-queue --exactly-once --poll-interval "
        "--handover-horizon --on-expired --added-headers",
        "Monitoring": "--metrics --metrics-destinations --name --verbose",
        "Control": "--audit --retention --history --fail-fast",
    },
    "serve": {
        "Configuration": "--config --check --print-config --print-systemd",
        "Parts": "--web --no-web --metrics --metrics-destinations --health --ingress --control",
        "Control": "--drain --log-level",
        "Dispatcher": "--name",
    },
    "ingress run": {
        "Queues": "--queue --rejected-queue --error-queue",
        "Messages": "--destination --allow-destination --delay-headers --count-from --direct-below --on-duplicate "
        "--on-repeat --max-body-bytes",
        "Performance": "--batch-size --prefetch --memory-bytes",
        "Control": "--audit --metrics --fail-fast --verbose",
    },
    "ingress create": {
        "Names and types": "--type --exchange-type --output-exchange --queue",
        "Delayed-message plugin": "--from-plugin --new-exchange --definitions --replace",
        "Control": "--dry-run",
    },
    "list": {"Select": _FILTERS, "Pages": "--after --limit --all --wide"},
    "count": {"Select": _FILTERS, "Control": "--per --exact"},
    "cancel": {"Select": f"--key {_FILTERS} --all", "Control": "--dry-run --yes --actor"},
    "reschedule": {
        "New due time": "--delay --at --by --time-zone",
        "Select": f"--key {_FILTERS} --all",
        "Control": "--dry-run --yes --actor",
    },
    "export": {"Select": _FILTERS, "Control": "--format --after --continue --dry-run"},
    "history": {"Select": "--key --destination --since --until --outcome", "Pages": "--after --limit --wide"},
    "errors list": {
        "Select": _ERROR_FILTERS,
        "Pages": "--messages --limit --skip --examine --wide",
        "Control": "--error-queue",
    },
    "errors replay": {
        "Select": f"{_ERROR_FILTERS} --all --limit",
        "Control": "--to --dry-run --actor --error-queue",
    },
    "errors discard": {
        "Select": f"{_ERROR_FILTERS} --all --limit",
        "Control": "--dry-run --yes --actor --error-queue",
    },
    "schedules put": {
        "When": "--cron --every --at --zone --both-days --starts --ends --max-runs",
        "Missed and late runs": "--catch-up --max-late --jitter --if-waiting",
        "Message": "--to --header --headers-json --property --body-file --json-body",
        "Control": "--dry-run --actor",
    },
    "loads reschedule": {"New due time": "--delay --at --by --time-zone", "Control": "--dry-run --yes --actor"},
    "cascade migrate": {"Select": "--from --to", "Control": _MOVE},
    "cascade transfer": {"Select": "--to-broker --cascade --to-cascade", "Control": _MOVE},
    "migrate preview": {"Select": _MIGRATION, "Control": "--allow-rejected"},
    "migrate run": {
        "Select": _MIGRATION,
        "Control": "--batch-size --max-rate --max-rejected --allow-rejected --target-timeout --yes",
    },
    "migrate status": {"Select": _MIGRATION, "Control": "--list-rejected"},
    "migrate abort": {"Select": _MIGRATION, "Control": "--target-lost --yes"},
    "migrate cleanup": {"Select": _MIGRATION, "Control": "--force --yes"},
    "migrate schedules": {"Select": "--from --to --endpoint", "Control": "--dry-run --yes"},
}
"""The sections of a command's options. A command that is not here has one section for all its options."""
REFERENCES: Final[Mapping[str, tuple[str, str, str]]] = {
    "send": (
        "File",
        "--map --format --separator --load-id --id-columns --key-column --on-duplicate --unknown-columns "
        "--time-zone --zone-column --ambiguous-time --spread --ramp --window --rejects-dir --max-rows-per-second "
        "--dry-run --preview --plot --again",
        "delaystore load --help",
    ),
    "serve": (
        "Dispatcher",
        "--batch-size --number-of-retries --error-queue --exactly-once --poll-interval --handover-horizon --on-expired "
        "--added-headers --audit --retention --history",
        "delaystore dispatch --help",
    ),
}
"""Of a command: the last section, options in it that are only named, and the place that explains these."""

# Calls that work as they are, given a store, a transport and an endpoint.
# Those about a cascade or an ingress: given a broker and its management API.

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": (
        "send billing 'pay me' --delay 3d --message-id invoice-7",
        "cancel invoice-7",
        "status --watch",
    ),
    "help": ("help exit-codes",),
    "demo": ("demo", "demo --messages 200 --seconds 2"),
    "setup": ("setup --queue billing", "setup --check"),
    "send": (
        "send billing 'pay me' --delay 3d --header kind=reminder",
        "send billing 'pay me' --at 2027-01-31T09:00Z --message-id invoice-7",
        "send --file reminders.csv --load-id reminders-2027",
    ),
    "load": (
        "load reminders.csv --load-id reminders-2027 --dry-run",
        "load 'reminders/*.csv' --load-id reminders-2027 --map due_time=send_at",
    ),
    "dispatch": ("dispatch", "dispatch --once"),
    "serve": (
        "serve --config delaystore.toml --check",
        "serve --check --web 127.0.0.1:8080 --metrics 127.0.0.1:9464",
        "serve --print-config",
    ),
    "list": ("list --destination billing --due-before 2027-02-01T00:00Z", "list --failing"),
    "show": ("show invoice-7", "show --key customer-42 --body"),
    "count": ("count --destination billing", "count --per hour"),
    "cancel": ("cancel invoice-7", "cancel --header campaign=spring --dry-run"),
    "reschedule": ("reschedule invoice-7 --delay 2h30m", "reschedule --destination billing --failing --delay 0"),
    "export": ("export spring.jsonl --header campaign=spring", "export - --format csv"),
    "pause": ("pause billing --for 2h",),
    "resume": ("resume billing",),
    "limit": ("limit billing --max-rate 200/s", "limit billing --max-rate none"),
    "destinations": ("destinations", "destinations --backlog"),
    "changes": ("changes --limit 20",),
    "history": ("history invoice-7", "history --destination billing --outcome failed --since 2027-01-01T00:00Z"),
    "receive": ("receive billing --limit 10",),
    "status": ("status", "status --watch --interval 5s"),
    "endpoints": ("endpoints",),
    "health": ("health --max-overdue 10m --require-dispatcher",),
    "web": ("web --port 0 --read-only",),
    "control": ("control --hide-bodies",),
    "errors list": ("errors list", "errors list --messages --destination billing"),
    "errors show": ("errors show invoice-7",),
    "errors replay": ("errors replay --destination bilng --to billing --dry-run", "errors replay --kind Unroutable"),
    "errors discard": ("errors discard --destination bilng --failed-before 2027-01-01T00:00Z",),
    "loads list": ("loads list",),
    "loads show": ("loads show reminders-2027",),
    "loads cancel": ("loads cancel reminders-2027 --dry-run",),
    "loads pause": ("loads pause reminders-2027 --for 2d",),
    "loads resume": ("loads resume reminders-2027",),
    "loads reschedule": ("loads reschedule reminders-2027 --by 7d --time-zone Europe/Berlin",),
    "schedules put": (
        "schedules put reports/weekly --cron '0 9 * * 1' --zone Europe/Berlin --to billing",
        "schedules put probes/ping 'are you there?' --every 5m --to billing --dry-run",
    ),
    "schedules list": ("schedules list", "schedules list reports/"),
    "schedules show": ("schedules show reports/weekly",),
    "schedules upcoming": ("schedules upcoming reports/weekly --count 10",),
    "schedules pause": ("schedules pause reports/weekly",),
    "schedules resume": ("schedules resume reports/weekly",),
    "schedules skip": ("schedules skip reports/weekly --at 2030-12-02T09:00:00+01:00",),
    "schedules trigger": ("schedules trigger reports/weekly",),
    "schedules backfill": ("schedules backfill reports/weekly --since 2026-10-01T00:00Z --until 2026-11-01T00:00Z",),
    "schedules apply": ("schedules apply schedules.toml --dry-run", "schedules apply schedules.toml"),
    "schedules delete": ("schedules delete reports/weekly",),
    "operations list": ("operations list",),
    "operations resume": ("operations resume spring-offers",),
    "operations abandon": ("operations abandon spring-offers",),
    "cascade create": ("cascade create --dry-run", "cascade create"),
    "cascade verify": ("cascade verify",),
    "cascade bind": ("cascade bind billing",),
    "cascade export": (
        "cascade export --format mermaid",
        "cascade export --format terraform --output cascade.tf.json",
    ),
    "cascade status": ("cascade status", "cascade status --observe 0s"),
    "cascade migrate": ("cascade migrate --from nservicebus-v1 --to nservicebus-v2 --dry-run",),
    "cascade transfer": ("cascade transfer --to-broker @new-broker.url --dry-run",),
    "cascade delete": ("cascade delete --dry-run",),
    "ingress create": (
        "ingress create orders --type topic",
        "ingress create reminders --definitions before.json --dry-run",
    ),
    "ingress verify": ("ingress verify orders",),
    "ingress run": ("ingress run orders",),
    "ingress status": ("ingress status orders",),
    "ingress replay": (
        "ingress replay orders.ingress.rejected --dry-run",
        "ingress replay orders.ingress.rejected invoice-7",
    ),
    "ingress delete": ("ingress delete orders --dry-run",),
    "migrate preview": ("migrate preview --from sqlite:///old.db --to sqlite:///new.db --endpoint sales",),
    "migrate run": ("migrate run --from sqlite:///old.db --to sqlite:///new.db --endpoint sales --yes",),
    "migrate status": ("migrate status --from sqlite:///old.db --all-endpoints",),
    "migrate verify": ("migrate verify --from sqlite:///old.db --to sqlite:///new.db --endpoint sales",),
    "migrate abort": ("migrate abort --from sqlite:///old.db --to sqlite:///new.db --endpoint sales --yes",),
    "migrate cleanup": ("migrate cleanup --from sqlite:///old.db --to sqlite:///new.db --endpoint sales --yes",),
    "migrate schedules": (
        "migrate schedules --from apscheduler+sqlite:///old.db?destination=jobs --to sqlite:///new.db "
        "--endpoint sales --dry-run",
    ),
}

DEFAULT_EXIT_CODES: Final[Mapping[int, str]] = {0: "Done", 2: "Wrong usage, or an error such as no connection"}
_STOPPED: Final = "Stopped by SIGTERM or SIGINT"
_NOT_ADDED_UP: Final = "The messages that were read and their results do not add up"
_DECLINED: Final = "Some messages stay in the error queue, or you declined"
_NOT_LOADED: Final = "A dry run found a reason to fail, or the files have more or fewer rows than the finished load"
_REMAIN: Final = "Rejected messages remain, from this run or an earlier one"
_NO_SCHEDULE: Final[Mapping[int, str]] = {1: "The schedule does not exist"}
EXIT_CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "demo": {0: "Each message arrived once", 1: "A message was lost, duplicated or early"},
    "setup": {0: "Ready", 1: "A defect remains; a line names it and its remedy"},
    "dispatch": {0: "Stopped by SIGTERM or SIGINT, or done with --once"},
    "serve": {0: f"{_STOPPED}, or a valid configuration with --check", 1: "A part did not finish within --drain"},
    "web": {0: _STOPPED},
    "control": {0: _STOPPED},
    "send": {1: "--file: the dry run would fail, or the load had other numbers of rows"},
    "load": {1: _NOT_LOADED},
    "show": {1: "The message does not exist"},
    "history": {1: "Nothing is known of the message or the key"},
    "cancel": {
        0: "All cancelled",
        1: "A message is being dispatched, it or its load does not exist, the operation was abandoned, or you declined",
    },
    "reschedule": {
        0: "All rescheduled",
        1: "A message is being dispatched, it or its load does not exist, the operation was abandoned, or you declined",
    },
    "resume": {1: "The destination is not paused"},
    "receive": {1: "The queue is empty"},
    "status": {0: "Healthy", 1: "Unhealthy, as for health"},
    "health": {
        0: "Healthy",
        1: "Unhealthy: a message is overdue for longer than --max-overdue, the store is read-only or does not answer "
        "in time, a required table, column or index is missing, or (--require-dispatcher) no dispatcher runs",
    },
    "errors show": {1: "The message is not among the first 10,000"},
    "errors replay": {0: "All replayed", 1: "Some matching messages stay in the error queue"},
    "errors discard": {0: "All deleted", 1: _DECLINED},
    "loads show": {1: "The load does not exist"},
    "loads cancel": {
        0: "All waiting messages cancelled",
        1: "A message is being dispatched, the load does not exist, the operation was abandoned, or you declined",
    },
    "loads pause": {1: "The load does not exist"},
    "loads resume": {1: "The load does not exist, or is not paused"},
    "loads reschedule": {
        0: "All rescheduled",
        1: "A message is being dispatched, the load does not exist, the operation was abandoned, or you declined",
    },
    **dict.fromkeys(("schedules show", "schedules upcoming", "schedules trigger", "schedules backfill"), _NO_SCHEDULE),
    "schedules pause": {1: "The schedule does not exist, or is paused already"},
    "schedules resume": {1: "The schedule does not exist, or is not paused"},
    "schedules skip": {1: "The schedule does not exist, or a dispatcher has claimed the run"},
    "schedules apply": {1: "You declined; nothing was changed"},
    "schedules delete": {1: "The schedule does not exist, or you declined"},
    "operations resume": {1: "A message is being dispatched, or the operation was abandoned or does not exist"},
    "operations abandon": {1: "The operation does not exist, or had ended before"},
    "cascade create": {1: "A policy could not be set; with --passive: a part is missing"},
    "cascade verify": {0: "Good", 1: "A part is missing or wrong"},
    "cascade delete": {0: "Deleted, or nothing to delete", 1: "Messages wait, or you declined; nothing was deleted"},
    "cascade bind": {1: "A destination could not be bound"},
    "cascade migrate": {1: _NOT_ADDED_UP},
    "cascade transfer": {1: _NOT_ADDED_UP},
    "cascade status": {
        0: "Good",
        1: "Messages are undeliverable or stuck, a destination is full or unavailable, or a level is missing",
    },
    "ingress run": {0: _STOPPED},
    "ingress create": {2: "Wrong usage, an error, or a difference on the broker; nothing was changed"},
    "ingress verify": {0: "Good", 1: "A part is missing or wrong"},
    "ingress status": {
        0: "Good",
        1: "A part is missing, the ingress queue has no consumer, or messages are expired or rejected",
    },
    "ingress replay": {0: "All published", 1: "Some messages stay in the queue, or the message does not exist"},
    "ingress delete": {
        0: "Deleted, or nothing to delete",
        1: "A queue has messages or consumers, or you declined; nothing was deleted",
    },
    "migrate preview": {0: "A run can begin", 1: "A problem blocks the run"},
    "migrate run": {1: "You declined", 3: "Done, but rejected messages remain (a dry run: would be rejected)"},
    "migrate abort": {1: "You declined", 3: "A rejected message remains, because a message with its id waits again"},
    "migrate verify": {0: "The counts and checksums add up", 1: "They do not add up", 3: _REMAIN},
    "migrate cleanup": {1: "You declined"},
    "migrate schedules": {1: "You declined", 3: "Done, but rejected jobs remain in APScheduler's table"},
}
"""Exit codes of a command that differ from the usual ones."""

TOPICS: Final[Mapping[str, str]] = {
    "environment": """
Set options by environment variables.

Every option can be an environment variable. An option on the command line takes precedence over its variable.

Common options have one variable for all commands:
  {variables}
  DELAYSTORE_ACTOR  --actor
  DELAYSTORE_ERROR_QUEUE  --error-queue
  DELAYSTORE_CASCADE  --cascade
  DELAYSTORE_WIDE  --wide

Each other option has a variable named DELAYSTORE_<COMMAND>_<OPTION>, in capitals, with _ in place of dashes and spaces:
  DELAYSTORE_LIST_LIMIT  list --limit
  DELAYSTORE_ERRORS_REPLAY_TO  errors replay --to
  DELAYSTORE_INGRESS_QUEUE  --queue of all ingress commands
  DELAYSTORE_MIGRATE_FROM  --from of all migrate commands
  DELAYSTORE_MIGRATE_ENDPOINT  --endpoint of all migrate commands

A flag is set by 1, true, yes or on. A repeatable option takes several values, separated by spaces.

A URL contains a password. To keep the password out of the environment, write @FILE in place of any URL, and delaystore
reads the URL from that file: DELAYSTORE_STORE=@/run/secrets/store. The option takes @FILE, too.

The web page reads three variables that have no option:
  DELAYSTORE_WEB_USERS  Users, with their passwords and roles
  DELAYSTORE_WEB_TOKENS  Tokens of programs, with their roles
  DELAYSTORE_WEB_SECRET  The secret that signs forms and sessions
""",
    "exit-codes": """
Exit codes of all commands.

The help of each command lists its own exit codes:
  0  Done. For serve, dispatch, ingress run, control and web: stopped by SIGTERM or SIGINT
  1  The command ran, but a check failed, a message does not exist, work is left over, or you declined
  2  Wrong usage, or an error such as no connection; one line on standard error names the cause
  3  Of migrate: done, but rejected messages remain
  130  Interrupted by Ctrl-C (SIGINT); the last line tells you how to continue
  141  The reader of the output closed the pipe, as head does
  143  Terminated by SIGTERM
""",
    "times": """
Durations and times.

A duration is a number with a unit. Without a unit it is in seconds:
  90, 1.5  Seconds
  90s, 250ms  Seconds, milliseconds
  15m, 2h30m  Minutes, hours and minutes
  3d, 1w 2d  Days, weeks and days

A time is in ISO 8601, with its offset from UTC. delaystore refuses a time without an offset:
  2027-01-31T09:00:00+01:00  9 o'clock in Berlin
  2027-01-31T08:00Z  The same time in UTC

For the due time, pass either --delay DURATION or --at TIME. For a range, pass --due-after TIME (at that time or later),
--due-before TIME (earlier than that time), or both. history takes --since TIME and --until TIME in the same way.
""",
    "filters": """
Select waiting messages by filters.

list, count, cancel, reschedule and export share these filters:
  {filters}

A message must match all filters. Repeat --header to require several headers. Header values are compared as text.

cancel and reschedule need a filter, ids, keys or --all. With --dry-run they show how many messages match, and change
none.
""",
    "common": """
Common options.

Most commands take these options. Set their environment variables once, and leave the options out:
  {common}

To read a URL from a file, write @FILE in its place: --store @/run/secrets/store.

Only demo, setup, dispatch, serve, ingress run and migrate create missing tables, and a SQLite file. send and load
create them with --create.
""",
}
"""The output of `delaystore help TOPIC`: paragraphs, the first of them a title."""
