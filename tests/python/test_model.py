# SPDX-License-Identifier: Apache-2.0
"""What pagefuse.load() gives, the documents and types of the package, and its wheel; run in the top folder by `ctest -L python`."""

import ast
import contextlib
import inspect
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import pagefuse
from pagefuse import _pagefuse
from pagefuse.progress import ProgressLine

RECALL = Path("models/gemma3_recall")
FACTS = "The red box holds 12 pins. The tin cup holds 45 keys."
RED = FACTS + "\nWhat does the red box hold? "
TIN = FACTS + "\nWhat does the tin cup hold? "
PACKAGE = Path(pagefuse.__file__).parent


class ModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = pagefuse.load(RECALL, kv_cache="fp8_per_token_head", threads=2)

    def test_texts_ids_and_messages_have_the_same_answer(self):
        messages = [{"role": "user", "content": RED.strip()}]
        for prompt in (RED, self.model.encode(RED), self.model.encode(RED).tolist(), messages):
            answer = self.model.generate(prompt)
            self.assertEqual((answer.text, str(answer), answer.finish), ("12 pins.\n", "12 pins.\n", "stop"))
            self.assertEqual(answer.tokens.tolist(), [*b"12 pins.\n"])
            self.assertEqual(answer.prompt_tokens, len(RED) + 1)

    def test_a_list_is_a_batch(self):
        answers = self.model.generate([RED, self.model.encode(TIN), [{"role": "user", "content": TIN}]])
        self.assertEqual([a.text for a in answers], ["12 pins.\n", "45 keys.\n", "45 keys.\n"])
        self.assertEqual(len(self.model.generate([RED])), 1)
        rows = np.stack([self.model.encode(RED)] * 2)
        self.assertEqual([a.text for a in self.model.generate(rows)], ["12 pins.\n"] * 2)

    def test_samples_and_logits(self):
        drawn = self.model.generate(RED, samples=3, temperature=2.0, seed=1, max_new_tokens=4, logits=True)
        again = self.model.generate(RED, samples=3, temperature=2.0, seed=1, max_new_tokens=4)
        self.assertEqual([a.text for a in drawn], [a.text for a in again])
        self.assertGreater(len({a.text for a in drawn}), 1)
        self.assertEqual(drawn[0].logits.shape, (4, 256))
        self.assertIsNone(again[0].logits)

    def test_sampling_is_that_of_the_models_files_unless_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("model.onnx", "weights.data", "config.json", "tokenizer.json", "tokenizer_config.json"):
                shutil.copy(RECALL / name, folder)
            plain = pagefuse.load(folder)
            (Path(folder) / "generation_config.json").write_text('{"do_sample": true, "temperature": 5.0, "top_k": 50}')
            model = pagefuse.load(folder)
        self.assertEqual((model.sampling["temperature"], model.sampling["top_k"]), (5.0, 50))
        files = model.generate(RED, seed=3, max_new_tokens=6, ignore_end=True)
        named = plain.generate(RED, seed=3, max_new_tokens=6, ignore_end=True, temperature=5.0, top_k=50)
        self.assertEqual(files.tokens.tolist(), named.tokens.tolist())
        self.assertNotEqual(files.text, "12 pin")
        self.assertEqual(model.generate(RED, temperature=0, max_new_tokens=6).text, "12 pin")

    def test_stops_end_the_text(self):
        self.assertEqual(self.model.generate(RED, stop=" pins").text, "12")
        self.assertEqual(self.model.generate(RED, stop=["xx", "s."]).finish, "stop")
        self.assertEqual("".join(self.model.stream(RED, stop="pins")), "12 ")
        # What may still become a stop is text at the end.
        self.assertEqual("".join(self.model.stream(RED, stop="ns.\n!", max_new_tokens=8)), "12 pins.")
        self.assertGreater(len(self.model.generate(RED, ignore_end=True, max_new_tokens=12).tokens), 9)

    def test_streams_give_the_text_in_pieces(self):
        stream = self.model.stream(RED)
        self.assertIsNone(stream.answer)
        pieces = list(stream)
        self.assertEqual((len(pieces), "".join(pieces)), (9, "12 pins.\n"))
        whole = self.model.generate(RED)
        self.assertEqual((stream.answer.text, stream.answer.finish), (whole.text, "stop"))
        np.testing.assert_array_equal(stream.answer.tokens, whole.tokens)
        self.assertEqual(list(stream), [])

    def test_streams_that_are_closed_or_dropped_end(self):
        with self.model.stream(RED, ignore_end=True, max_new_tokens=8000) as stream:
            read = next(stream) + next(stream)
        self.assertEqual((stream.answer.text, stream.answer.tokens.tolist(), stream.answer.finish), (read, [49, 50], "ended"))
        self.assertEqual(list(stream), [])
        began = time.monotonic()
        for _ in self.model.stream(RED, ignore_end=True, max_new_tokens=8000):
            break
        for thread in threading.enumerate():
            if thread.name == "pagefuse.Stream":
                thread.join(timeout=60)
                self.assertFalse(thread.is_alive())
        self.assertEqual(self.model.generate(RED).text, "12 pins.\n")
        self.assertLess(time.monotonic() - began, 60)

    def test_calls_take_turns(self):
        # A call within a loop over a stream waits until that is made, and the stream is whole.
        text = ""
        for piece in self.model.stream(RED):
            if not text:
                self.assertEqual(self.model.generate(TIN).text, "45 keys.\n")
            text += piece
        self.assertEqual(text, "12 pins.\n")

    def test_a_program_ends_with_a_stream_that_nobody_reads(self):
        code = f"import pagefuse; s = pagefuse.load({str(RECALL)!r}).stream('a', max_new_tokens=8000, ignore_end=True); print(next(s) != '')"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True\n", ""))

    def test_progress_hears_of_prompt_and_answer(self):
        heard = []
        model = pagefuse.load(RECALL, progress=lambda *told: heard.append(told), max_tokens_per_step=50)
        self.assertEqual(heard, [("reading", 0, 0), ("rewriting", 0, 0)])
        heard.clear()
        model.generate(RED, max_new_tokens=9, progress=lambda *told: heard.append(told))
        prompt = len(RED) + 1
        self.assertEqual(heard[:2], [("prompt", 50, prompt), ("prompt", prompt, prompt)])
        self.assertEqual(heard[2:], [("answer", i + 1, 9) for i in range(9)])

        def fail(stage, done, total):
            raise KeyError("mine")

        for call in (lambda: model.generate(RED, progress=fail), lambda: list(model.stream(RED, progress=fail))):
            with self.assertRaisesRegex(KeyError, "mine"):
                call()
        with self.assertRaisesRegex(KeyError, "mine"):
            pagefuse.load(RECALL, progress=fail)
        self.assertEqual(model.generate(RED).text, "12 pins.\n")

    def test_a_prompt_that_is_too_long_is_refused_alone(self):
        answers = self.model.generate([RED, [2] * 9000, TIN], max_new_tokens=16)
        self.assertEqual([a.finish for a in answers], ["stop", "refused", "stop"])
        self.assertIn("expected 8192 at most, the positions of the model", answers[1].error)
        self.assertEqual((answers[1].text, answers[1].prompt_tokens, answers[0].error), ("", 9000, None))
        self.assertEqual([answers[i].text for i in (0, 2)], [self.model.generate(p).text for p in (RED, TIN)])

    def test_errors_name_argument_and_expectation(self):
        generate, load = self.model.generate, pagefuse.load
        for error, message, call in (
            (TypeError, 'no option "temprature": did you mean temperature', lambda: generate(RED, temprature=1)),
            (TypeError, 'no option "sample": did you mean samples', lambda: generate(RED, sample=2)),
            (TypeError, 'no option "kvcache": did you mean kv_cache', lambda: load(RECALL, kvcache="none")),
            (TypeError, "temperature: expected a number, got 'hot'", lambda: generate(RED, temperature="hot")),
            (TypeError, "seed: expected a whole number, 0 or more, got -1", lambda: generate(RED, seed=-1)),
            (TypeError, r"expected a text, token ids or messages, got \[1.5\]", lambda: generate([[1.5]])),
            (TypeError, "got bytes", lambda: generate(b"text")),
            (TypeError, "expected a list of messages", lambda: generate({"role": "user", "content": "x"})),
            (TypeError, "stop: expected a text", lambda: generate(RED, stop=[1])),
            (TypeError, "progress: expected a function", lambda: generate(RED, progress=3)),
            (ValueError, "got an empty list", lambda: generate([])),
            (ValueError, "top_p: expected more than 0, at most 1, got 2", lambda: generate(RED, top_p=2, temperature=1)),
            (ValueError, "max_new_tokens: expected a whole number, 0 or more, got -1", lambda: generate(RED, max_new_tokens=-1)),
            (ValueError, "expected 8192 at most, the positions of the model", lambda: generate(RED, max_new_tokens=9000)),
            (ValueError, 'stop: .*the special token "<eos>" within', lambda: generate(RED, stop="a<eos>")),
            (ValueError, "expected one for a stream", lambda: self.model.stream([RED, TIN])),
            (ValueError, "expected the roles system, user and assistant", lambda: generate([{"role": "x", "content": ""}])),
            (ValueError, "kv_cache: expected .*bf16.*got", lambda: load(RECALL, kv_cache="bf17")),
            (ValueError, '^prefix_reuse: expected exact, all or off, got "most"$', lambda: load(RECALL, prefix_reuse="most")),
            (ValueError, '^drafts: expected auto or off, got "on"$', lambda: load(RECALL, drafts="on")),
            (ValueError, "^step_ms: expected 1 to 2147483647, got 0$", lambda: load(RECALL, step_ms=0)),
            (ValueError, "cache_bytes: expected none beside cache_tokens", lambda: load(RECALL, cache_bytes=1, cache_tokens=1)),
            (ValueError, "max_tokens_per_step: expected 4 or more, got 3", lambda: load(RECALL, max_tokens_per_step=3)),
            (ValueError, "max_sequences: expected 1 to 2, half of", lambda: load(RECALL, max_tokens_per_step=4, max_sequences=3)),
            (TypeError, r'^load\(\) has no option "draft": did you mean drafts', lambda: load(RECALL, draft="off")),
            (TypeError, r'^Engine\(\) has no option "reread": did you mean no_reread', lambda: pagefuse.Engine(RECALL, reread=True)),
            (FileNotFoundError, "no_such", lambda: load("no_such")),
            (TypeError, "expected token ids, got the text 'text'.*load", lambda: self.model.engine.generate(["text"])),
        ):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                call()

    def test_answers_tell_what_earlier_texts_began_with(self):
        # 69 tokens are alike, in whole blocks of 16; and of 83 that were there two are computed at least.
        for reuse, known in (("exact", [0, 64, 80]), ("all", [0, 64, 80]), ("off", [0, 0, 0])):
            model = pagefuse.load(RECALL, prefix_reuse=reuse)
            answers = [*model.generate([RED, TIN]), model.generate(RED)]
            self.assertEqual([a.text for a in answers], ["12 pins.\n", "45 keys.\n", "12 pins.\n"])
            self.assertEqual([a.cached_tokens for a in answers], known)
            self.assertEqual(model.stats["shared_tokens"], sum(known))
        with self.model.stream(RED, ignore_end=True) as stream:
            next(stream)
        self.assertIsNone(stream.answer.cached_tokens)

    def test_the_engines_settings_count(self):
        text = "ab" * 40
        drafted, plain = (pagefuse.load(RECALL, drafts=drafts) for drafts in ("auto", "off"))
        given = [m.generate(text, ignore_end=True, max_new_tokens=40).tokens.tolist() for m in (drafted, plain)]
        self.assertEqual(*given)
        self.assertGreater(drafted.stats["draft_tokens"], 0)
        self.assertEqual(plain.stats["draft_tokens"], 0)
        small = pagefuse.load(RECALL, cache_bytes=1 << 20, max_tokens_per_step=16, max_sequences=2, step_ms=1)
        self.assertEqual([a.text for a in small.generate([RED, TIN, RED])], ["12 pins.\n", "45 keys.\n", "12 pins.\n"])
        with self.assertRaisesRegex(MemoryError, "tokens"):
            small.generate([2] * 4000)

    def test_a_call_within_another_one_is_refused(self):
        def ask(stage, done, total):
            self.model.generate(TIN)

        with self.assertRaisesRegex(RuntimeError, "runs on this thread: expected none from a function that it calls"):
            self.model.generate(RED, progress=ask)
        self.assertEqual(self.model.generate(TIN).text, "45 keys.\n")

    def test_without_a_tokenizer_prompts_are_ids(self):
        model = pagefuse.load("models/gemma3_B18/model.onnx")
        self.assertIsNone(model.tokenizer)
        answer = model.generate([2, 5, 9], max_new_tokens=4)
        self.assertEqual((answer.text, len(answer.tokens)), ("", 4))
        for call in (lambda: model.generate("text"), lambda: model.stream([2]), lambda: model.generate([2], stop="x"), model.chat):
            with self.assertRaisesRegex(ValueError, "tokenizer.json|chat template"):
                call()


    def test_a_graph_that_is_not_paged_warns(self):
        graph = Path(os.environ["PAGEFUSE_TEST_DATA"]) / "went_wrong" / "A_conv.onnx"
        with self.assertWarnsRegex(UserWarning, "^not paged: .*node .*; it generates as it was exported"):
            model = pagefuse.load(graph)
        self.assertEqual(len(model.generate([1, 2], max_new_tokens=2).tokens), 2)


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = pagefuse.load(RECALL)

    def test_keeps_what_was_said_and_its_cache(self):
        chat = self.model.chat(FACTS)
        self.assertEqual(chat.ask("What does the red box hold?").text, "12 pins.\n")
        before = self.model.stats["prefill_tokens"]
        self.assertEqual("".join(chat.stream("What does the tin cup hold?")), "45 keys.\n")
        # The new question was computed, the answer read, and less than a block of what was before; not all 120.
        self.assertLess(self.model.stats["prefill_tokens"] - before, 48)
        self.assertEqual([m["role"] for m in chat.messages], ["system", "user", "assistant", "user", "assistant"])
        other = self.model.chat(messages=chat.messages)
        self.assertEqual(other.ask("What does the red box hold?").text, "12 pins.\n")

    def test_answers_are_read_between_questions(self):
        def joined():
            for thread in threading.enumerate():
                if thread.name in ("pagefuse.Reread", "pagefuse.Stream"):
                    thread.join(timeout=60)
                    self.assertFalse(thread.is_alive())

        for streams in (False, True):
            known = {}
            for no_reread in (False, True):
                model = pagefuse.load(RECALL, no_reread=no_reread)
                chat = model.chat(FACTS, ignore_end=True, max_new_tokens=40)
                if streams:
                    list(chat.stream("What does the red box hold?"))
                else:
                    chat.ask("What does the red box hold?")
                joined()
                read = model.stats["prefill_tokens"]
                known[no_reread] = chat.ask("What does the tin cup hold?").cached_tokens
                joined()
                self.assertEqual(model.stats["prefill_tokens"] > read, True)
            # The answer has 40 tokens, of which two whole blocks at least.
            self.assertGreaterEqual(known[False], known[True] + 32)

    def test_a_call_does_not_wait_until_an_answer_is_read(self):
        model = pagefuse.load(RECALL, max_tokens_per_step=4)
        chat = model.chat(FACTS, ignore_end=True, max_new_tokens=600)
        chat.ask("What does the red box hold?")
        before = model.stats["steps"]
        self.assertEqual(model.generate(TIN, max_new_tokens=2).text, "45")
        # Of the 150 steps by which the answer would be read there were few.
        self.assertLess(model.stats["steps"] - before, 100)

    def test_a_program_ends_while_an_answer_is_read(self):
        # What is registered runs when the threads have ended; the answer has 2000 tokens.
        code = f"""import atexit, pagefuse
model = pagefuse.load({str(RECALL)!r}, max_tokens_per_step=4)
atexit.register(lambda: print('read', 'all' if model.stats['prefill_tokens'] > 1500 else 'some'))
model.chat(ignore_end=True, max_new_tokens=2000).ask('a')"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "read some\n", ""))

    def test_undo_and_clear(self):
        chat = self.model.chat(FACTS, max_new_tokens=4)
        self.assertEqual(chat.ask("What does the red box hold?").text, "12 p")
        self.assertEqual(chat.ask("What does the tin cup hold?", max_new_tokens=2).text, "45")
        chat.undo()
        self.assertEqual([m["content"] for m in chat.messages[1:]], ["What does the red box hold?", "12 p"])
        chat.clear()
        self.assertEqual([m["role"] for m in chat.messages], ["system"])
        with self.assertRaisesRegex(ValueError, "nothing was asked"):
            chat.undo()

    def test_what_fails_is_not_said_and_what_was_read_is(self):
        chat = self.model.chat(FACTS)
        with self.assertRaises(ValueError):
            chat.ask("What does the red box hold?", top_p=3.0)
        self.assertEqual(len(chat.messages), 1)
        for piece in chat.stream("What does the red box hold?"):
            if piece == "2":
                break
        self.assertEqual(chat.messages[1:], [
            {"role": "user", "content": "What does the red box hold?"}, {"role": "assistant", "content": "12"}])  # fmt: skip


class ProgressLineTest(unittest.TestCase):
    def shown(self, seconds):
        """What a terminal sees of a line that lasts so long."""
        parent, child = pty.openpty()
        with os.fdopen(child, "w") as terminal, contextlib.redirect_stderr(terminal):
            line = ProgressLine()
            line("prompt", 1, 9)
            time.sleep(seconds)
            line("prompt", 5, 9)
            line.close()
            line("prompt", 9, 9)
            terminal.write("end")
            terminal.flush()
            seen = b""
            while not seen.endswith(b"end"):
                seen += os.read(parent, 1000)
        os.close(parent)
        return seen.decode()

    def test_shows_what_lasts_and_takes_it_away(self):
        self.assertEqual(self.shown(1.5), "\r\x1b[Kprompt 1 of 9 tokens\r\x1b[Kprompt 5 of 9 tokens\r\x1b[Kend")
        self.assertEqual(self.shown(0), "end")


def printed(code, names, file):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, file, "exec"), names)  # noqa: S102: our own documents
    return [line.rstrip() for line in output.getvalue().splitlines() if line.strip()]


class DocumentTest(unittest.TestCase):
    def test_the_example_prints_what_it_says(self):
        names, cells = {}, re.split(r"(?m)^(?=# %%)", Path("python/examples/first_answers.py").read_text())
        self.assertGreater(len(cells), 8)
        for cell in cells:
            said = [line[4:] for line in cell.splitlines() if line.startswith("# > ")]
            self.assertEqual(printed(cell, names, "first_answers.py"), said, cell)

    def test_docs_python_md_is_true(self):
        page = Path("docs/python.md").read_text()
        blocks = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", page, re.S)
        self.assertGreater(len(blocks), 3)
        here, names = os.getcwd(), {}
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(Path("models").resolve(), Path(folder) / "models")
            os.chdir(folder)
            try:
                for code, said in blocks:
                    self.assertEqual(printed(code, names, "python.md"), said.splitlines(), code)
            finally:
                os.chdir(here)
        for name in re.findall(r"`pagefuse\.(\w+)", page):
            self.assertTrue(hasattr(pagefuse, name), name)

    def test_docstrings_say_all_options(self):
        for function, options in (
            (pagefuse.Model.generate, pagefuse.Options), (pagefuse.load, pagefuse.Settings), (pagefuse.Engine, pagefuse.Settings),
        ):  # fmt: skip
            for name in options.__annotations__:
                self.assertRegex(function.__doc__, rf"\b{name}\b")
        for name in pagefuse.__all__:
            thing = getattr(pagefuse, name)
            if inspect.isfunction(thing) or inspect.isclass(thing):
                self.assertTrue(thing.__doc__, name)
                methods = [m for key, m in vars(thing).items() if inspect.isfunction(m) and not key.startswith("_")]
                self.assertEqual([m.__name__ for m in methods if not m.__doc__], [], name)

    def test_version_is_that_of_the_project(self):
        project = re.search(r"VERSION (\S+)", Path("CMakeLists.txt").read_text().split("project(", 1)[1])
        self.assertEqual(pagefuse.__version__, project.group(1))


class TypesTest(unittest.TestCase):
    def test_stubs_are_what_the_module_has(self):
        def parameters(function):
            names = [a.arg for a in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]]
            return [name for name in names if name != "self"]

        def compare(nodes, owner, place):
            for node in nodes:
                if isinstance(node, ast.ClassDef):
                    compare(node.body, getattr(owner, node.name), node.name)
                elif isinstance(node, ast.FunctionDef):
                    made = getattr(owner, node.name)
                    if isinstance(made, property):
                        continue
                    self.assertNotIn("property", [d.id for d in node.decorator_list if isinstance(d, ast.Name)], node.name)
                    signature = made.__doc__.splitlines()[0]
                    told = re.findall(r"[(,] ?(\w+)(?=:)", signature)
                    self.assertEqual([n for n in told if n not in ("self", "arg0")], parameters(node), f"{place}.{node.name}")

        stub = ast.parse((PACKAGE / "_pagefuse.pyi").read_text())
        compare(stub.body, _pagefuse, "_pagefuse")
        stubbed = {n.name for n in stub.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(stubbed, {name for name in dir(_pagefuse) if not name.startswith("__")})

    @unittest.skipUnless(shutil.which("mypy"), "mypy is not installed")
    def test_package_and_users_of_it_have_types(self):
        user = """import pagefuse
model = pagefuse.load("x", kv_cache="none", threads=2)
answer: pagefuse.Answer = model.generate("x", temperature=0.5)
answers: list[pagefuse.Answer] = model.generate([[1, 2], [3]])
piece: str = next(model.stream("x", stop=["a"]))
model.generate("x", temprature=1)  # type: ignore[call-overload]
pagefuse.load("x", kvcache="none")  # type: ignore[call-arg]
"""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "user.py").write_text(user)
            flags = ["--strict", "--allow-any-generics", "--enable-incomplete-feature=Unpack", "--cache-dir", folder]
            done = subprocess.run(
                ["mypy", *flags, "-p", "pagefuse", "-p", "user"], capture_output=True, text=True,
                env={**os.environ, "MYPYPATH": f"{Path('python').resolve()}:{folder}"},
            )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


@unittest.skipUnless(shutil.which("patchelf"), "patchelf is not installed")
class WheelTest(unittest.TestCase):
    def test_installs_into_a_bare_environment(self):
        here = Path(os.environ["PYTHONPATH"]).resolve()
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--bdist-dir", f"{folder}/tree", "--dist-dir", folder]
            made = ["setup.py", "--quiet", "build", "-b", f"{folder}/build", "bdist_wheel", *flags]
            subprocess.run([sys.executable, *made], cwd=here, check=True, capture_output=True)
            (wheel,) = Path(folder).glob("*.whl")
            self.assertRegex(wheel.name, rf"pagefuse-{pagefuse.__version__}-cp\d+-cp\d+-manylinux_\d+_\d+_\w+\.whl")
            site = Path(folder) / "site"
            subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, site], check=True)
            code = f"""import numpy, re
def mapped(): return {{line.split()[-1] for line in open("/proc/self/maps") if re.search(r"[.]so", line)}}
before = mapped()
import pagefuse
model = pagefuse.load({str(RECALL.resolve())!r})
print(model.generate({RED!r}).text.strip(), pagefuse.__file__)
print(*sorted(mapped() - before), sep="\\n")
"""
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder,
                env={"PYTHONPATH": str(site), "HOME": folder},
            )  # fmt: skip
            self.assertEqual(done.stderr, "")
            first, *libraries = done.stdout.splitlines()
            self.assertEqual(first, f"12 pins. {site}/pagefuse/__init__.py")
            system = re.compile(r"/lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)[.-]|/lib-dynload/")
            own = [path for path in libraries if not system.search(path)]
            self.assertGreater(len(own), 10)
            self.assertEqual([path for path in own if not path.startswith(str(site))], [])
            # The library for ONNX Runtime finds what it needs there, too.
            needed = subprocess.run(["ldd", site / "pagefuse/libpagefuse_ort.so"], capture_output=True, text=True).stdout
            paths = [line.split(" => ")[1].split()[0] for line in needed.splitlines() if " => " in line]
            self.assertEqual([p for p in paths if not system.search(p) and "/site/" not in p], [], needed)
            for name in ("py.typed", "_pagefuse.pyi", "lib/licenses/libdnnl2"):
                self.assertTrue((site / "pagefuse" / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
