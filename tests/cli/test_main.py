"""The command line as a whole: exit codes, one-line errors, help that fits."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from specsim.cli import main
from specsim.errors import InputError
from specsim.policies.build import ARMS, BUDGETS, CALIBRATORS

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = [[], ["simulate"], ["compare"], ["demo"], ["policies"], ["schema"], ["version"], ["cost"], ["trace"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command) or "specsim")
def test_help_fits_80_columns(specsim, command):
    code, out, _ = specsim(*command, "--help")
    assert code == 0
    assert "Usage: specsim" in out
    assert max(map(len, out.splitlines())) <= 80


def test_help_shows_no_swallowed_markup(specsim):
    _, out, _ = specsim("compare", "--help")
    assert "[TABLE:]A=B" in out
    assert "BUDGET@DRAFTER" in out


def test_nothing_shows_what_there_is(specsim):
    code, out, err = specsim()
    assert code == 2
    assert "compare" in out + err


@pytest.mark.parametrize("group", ["cost", "trace"])
def test_a_group_alone_shows_its_commands_and_complains_of_nothing(specsim, group):
    code, out, err = specsim(group)
    assert (code, err) == (2, "")
    assert f"Usage: specsim {group}" in out


def test_policies_are_listed_by_names_that_can_be_typed(specsim):
    _, out, _ = specsim("policies")
    for name in [*BUDGETS, *ARMS, *CALIBRATORS]:
        assert re.search(rf"^  {name}( |$)", out, re.MULTILINE), name
    assert max(map(len, out.splitlines())) <= 80


def test_version_names_itself(specsim):
    code, out, _ = specsim("version")
    assert code == 0
    assert out.startswith("specsim 0.")


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "compare"]])
def test_the_option_version_says_the_same_and_does_nothing_else(specsim, arguments):
    assert specsim(*arguments) == (0, specsim("version")[1], "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bogus"], "No such command 'bogus' (see specsim --help)"),
        (["version", "--x"], "No such option: --x (see specsim version --help)"),
        (["version", "more"], "unexpected extra argument"),
        (["compare", "--jobs", "many"], "Invalid value for '--jobs'"),
        (["compare", "--jobs", "0"], "Invalid value for '--jobs'"),
        (["simulate"], "Missing option '--trace'"),
        (["simulate", "--trace"], "requires an argument"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(refused, arguments, message):
    assert message in refused(*arguments)


def test_a_message_of_several_lines_becomes_one(specsim, monkeypatch):
    def fail(*arguments, **options):
        raise InputError("first\n  second")

    monkeypatch.setattr(main, "app", fail)
    assert specsim("version") == (2, "", "specsim: error: first second\n")


@pytest.mark.parametrize("fault", [ZeroDivisionError("a bug"), OSError(errno.EBADF, "a bug")])
def test_a_fault_of_specsim_itself_keeps_its_traceback(monkeypatch, fault):
    def fail(*arguments, **options):
        raise fault

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(type(fault)):
        main.run(["version"])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/data/out"), "/data/out: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "output: No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "/out"), "/out: Read-only file system"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(refused, monkeypatch, fault, message):
    def fail(*arguments, **options):
        raise fault

    monkeypatch.setattr(main, "app", fail)
    assert refused("demo") == message


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (MemoryError(), "not enough memory for what was asked; ask for less"),
        (MemoryError("7.45 GiB"), "not enough memory for what was asked (7.45 GiB); ask for less"),
    ],
)
def test_what_does_not_fit_in_memory_is_one_line(refused, monkeypatch, fault, message):
    def fail(*arguments, **options):
        raise fault

    monkeypatch.setattr(main, "app", fail)
    assert refused("demo") == message


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_a_folder_that_cannot_be_made_is_one_line(refused, world, option):
    study = ["--trace", world / "trace", "--cost", world / "linear", "--policy", "dcut@strong", "--batch", "2"]
    few = ["--seeds", "1", "--requests", "2", "--jobs", "1"]
    assert "/proc/nowhere" in refused("compare", *study, *few, option, "/proc/nowhere/out")


def test_a_folder_that_may_not_be_written_to_is_refused_before_any_work(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert refused("demo", "--html", tmp_path / "new" / "report.html") == f"--html: {tmp_path} cannot be written to"


@pytest.mark.parametrize("exception", [KeyboardInterrupt, main.typer.Abort])
def test_an_interrupt_is_exit_code_130_and_no_traceback(specsim, monkeypatch, exception):
    def interrupt(*arguments, **options):
        raise exception

    monkeypatch.setattr(main, "app", interrupt)
    assert specsim("version") == (130, "", "specsim: interrupted\n")


def test_an_interrupt_says_what_its_command_says_of_what_was_written(specsim, monkeypatch):
    def version():
        raise KeyboardInterrupt("half of it is there")

    monkeypatch.setattr(main.app.registered_commands[-1], "callback", version)
    assert specsim("version") == (130, "", "specsim: interrupted: half of it is there\n")


def test_main_leaves_with_the_exit_code(monkeypatch):
    with pytest.raises(SystemExit) as left:
        main.main(["bogus"])
    assert left.value.code == 2


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_package_runs_as_a_module():
    for arguments, code, start in ((["--version"], 0, "specsim 0."), (["bogus"], 2, "")):
        done = subprocess.run(
            [sys.executable, "-m", "specsim", *arguments], capture_output=True, text=True, env=ENVIRONMENT
        )
        assert (done.returncode, done.stdout[:10]) == (code, start)
        assert done.stderr.startswith("specsim: error: No such command 'bogus'") == (code == 2)


SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["specsim"]
STARTS = {
    "module": ["-m", "specsim"],
    "script": ["-c", "import sys; from {0} import {1}; sys.exit({1}())".format(*SCRIPT.split(":"))],
}


def start(how, modules, *arguments, interrupt=signal.SIG_DFL, **sources):
    """Run the command (without arguments: `version`) with modules of one's own before all others."""
    for name, source in sources.items():
        (modules / f"{name}.py").write_text(source)
    command = [sys.executable, *STARTS[how], *(arguments or ["version"])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path])}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
    )  # fmt: skip


INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.01)\n"
SWALLOWED = f"try:\n    exec({INTERRUPT!r})\nexcept BaseException:\n    raise ImportError('half of it') from None\n"


@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize(
    "source",
    [
        INTERRUPT,
        f"exec({INTERRUPT!r})",  # Python itself would then end by the signal, whoever catches the interrupt
        SWALLOWED,
    ],
    ids=["plain", "executed", "swallowed"],
)
def test_ctrl_c_while_modules_load_is_exit_code_130_and_no_traceback(tmp_path, how, source):
    done = start(how, tmp_path, typer=source)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "specsim: interrupted\n")


@pytest.mark.parametrize("how", STARTS)
def test_an_interrupt_that_is_ignored_stays_so_while_modules_load(tmp_path, how):
    done = start(how, tmp_path, interrupt=signal.SIG_IGN, typer=f"{INTERRUPT}raise SystemExit(7)")
    assert (done.returncode, done.stderr) == (7, "")


def test_ctrl_c_in_a_command_is_exit_code_130_wherever_it_comes(tmp_path):
    command = f"from specsim.cli import main\nmain._version_line = lambda: exec({INTERRUPT!r})\n"
    done = start("module", tmp_path, sitecustomize=command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "specsim: interrupted\n")


LIVE_COMMANDS = [["run", "--prompt", "x"], ["record"], ["profile"]]


@pytest.mark.parametrize("command", LIVE_COMMANDS, ids=lambda command: command[0])
def test_ctrl_c_while_a_command_loads_torch_is_exit_code_130_and_no_traceback(tmp_path, command):
    if find_spec("torch") is None:
        pytest.skip("needs the extra `live`")
    done = start("module", tmp_path, *command, torch=SWALLOWED)
    assert (done.returncode, done.stderr) == (130, "specsim: interrupted\n")


@pytest.mark.parametrize("command", LIVE_COMMANDS, ids=lambda command: command[0])
def test_a_command_that_needs_torch_says_so_where_it_is_not_installed(refused, monkeypatch, command):
    monkeypatch.setattr("specsim.live.extra.find_spec", lambda name: None)
    for module in ("session_config", "models", "engine", "drafters"):
        monkeypatch.setitem(sys.modules, f"specsim.live.{module}", None)  # an import fails, as without torch
    assert "needs torch, transformers, safetensors, accelerate, gguf, not installed; remedy" in refused(*command)


def test_the_console_script_runs_the_command_once_modules_have_loaded(tmp_path):
    assert start("script", tmp_path).stdout.startswith("specsim 0.")


def test_the_console_script_s_process_has_the_same_exit_code_and_line():
    arguments = [
        sys.executable,
        "-m",
        "specsim.cli.main",
        "simulate",
        "--trace",
        "nowhere",
        "--cost",
        "x",
        "--policy",
        "y",
    ]
    result = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("specsim: error: nowhere: no such trace")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_a_study_with_130_and_no_traceback(world, tmp_path, jobs):
    arguments = [
        sys.executable, "-m", "specsim.cli.main", "compare", "--trace", world / "trace", "--cost", world / "linear",
        "--policy", "dcut@strong", "--requests", "400", "--batch", "8", "--seeds", "20", "--jobs", jobs,
        "--out", tmp_path / "out",
    ]  # fmt: skip
    process = subprocess.Popen(
        arguments, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Where the tests themselves run in the background, an ignored interrupt would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not list(tmp_path.glob("out/runs/*.parquet")) and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "specsim: interrupted"
    assert "Traceback" not in err


def test_torch_is_not_imported_to_compare(world, tmp_path):
    script = (
        "import sys; from specsim.cli.main import run; "
        f"code = run(['compare', '--trace', {str(world / 'trace')!r}, '--cost', {str(world / 'linear')!r}, "
        "'--policy', 'dcut@strong', '--batch', '2', '--requests', '4', '--seeds', '1', '--jobs', '1']); "
        "assert code == 0; assert not {'torch', 'transformers', 'triton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, check=True, capture_output=True)
