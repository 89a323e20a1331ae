# SPDX-License-Identifier: Apache-2.0
"""The package over real exports; run in the top folder, by `ctest -L python`, which says in PAGEFUSE_TEST_DATA where data is unpacked."""

import json
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
import pagefuse

MODELS = Path("models")
GREEDY = json.loads((MODELS / "gemma3_B18" / "greedy.json").read_text())


def tensor(path):
    """A float32, int64 or bool TensorProto with raw data, as the test cases have."""
    data, at, dims, kind, raw = path.read_bytes(), 0, [], None, None

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
            if key >> 3 == 1:
                dims.append(value)
            elif key >> 3 == 2:
                kind = value
        else:
            size = varint()
            piece = data[at : at + size]
            at += size
            if key >> 3 == 1:  # packed dims
                dims += list(piece)
            elif key >> 3 == 9:
                raw = piece
    return np.frombuffer(raw, {1: np.float32, 7: np.int64, 9: np.bool_}[kind]).reshape(dims)


class Foreign:
    """What another package's array looks like: DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice(Foreign):
    def __dlpack_device__(self):
        return (2, 0)


def write_model(folder, text):
    path = Path(folder) / "model.onnxtxt"
    path.write_text(text)
    return path


IN_PLACE = """<ir_version: 10, opset_import: ["" : 21, "pagefuse" : 1]>
g (float[T, 1, 4] key, float[T, 1, 4] value, float[2, 4, 1, 4] key_cache, float[2, 4, 1, 4] value_cache, int64[T] slots)
  => (float[2, 4, 1, 4] keys, float[2, 4, 1, 4] values) {
  keys, values = pagefuse.PagedCacheInsert (key, value, key_cache, value_cache, slots)
}
"""

ADD = """<ir_version: 10, opset_import: ["" : 21]>
g (TYPE[N, M] a, TYPE[N, M] b) => (TYPE[N, M] c) { c = OP (a, b) }
"""


class SessionTest(unittest.TestCase):
    def add(self, dtype="float", op="Add"):
        with tempfile.TemporaryDirectory() as folder:
            return pagefuse.Session(write_model(folder, ADD.replace("TYPE", dtype).replace("OP", op)))

    def test_export_gives_its_reference_outputs(self):
        folder = Path(os.environ["PAGEFUSE_TEST_DATA"]) / "models" / "gemma3_A18"
        data = sorted(folder.glob("test_data_set_*"))[0]
        session = pagefuse.Session(folder / "model.onnx", optimise=False)
        feeds = {
            port.name: tensor(data / f"input_{i}.pb") for i, port in enumerate(session.inputs)
        }
        outputs = session.run(feeds)
        self.assertEqual(list(outputs), [port.name for port in session.outputs])
        for i, port in enumerate(session.outputs):
            np.testing.assert_allclose(
                outputs[port.name], tensor(data / f"output_{i}.pb"), rtol=1e-4, atol=1e-4
            )

    def test_ports_tell_types_and_dims(self):
        self.assertEqual(self.add().inputs[0], pagefuse.Port("a", "float", ("N", "M")))

    def test_takes_lists_strides_and_other_byte_orders(self):
        session = self.add()
        rows = np.arange(12, dtype=np.float32).reshape(3, 4)
        want = rows + rows
        for a in (rows, rows.T.copy().T, rows.astype(">f4"), Foreign(rows), Foreign(rows.T.copy().T)):
            np.testing.assert_array_equal(session.run({"a": a, "b": rows})["c"], want)
        ints = self.add("int64")
        np.testing.assert_array_equal(ints.run({"a": [[1, 2]], "b": [[3, 4]]})["c"], [[4, 6]])

    def test_caches_are_written_where_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            session = pagefuse.Session(write_model(folder, IN_PLACE))
        keys, values = np.zeros((2, 2, 4, 1, 4), np.float32)
        new = np.arange(8, dtype=np.float32).reshape(2, 1, 4)
        feeds = {"key": new, "value": -new, "key_cache": keys, "value_cache": values, "slots": [1, 6]}
        outputs = session.run(feeds)
        np.testing.assert_array_equal(keys[0, 1, 0], [0, 1, 2, 3])
        np.testing.assert_array_equal(keys[1, 2, 0], [4, 5, 6, 7])
        self.assertTrue(np.shares_memory(outputs["keys"], keys))
        # The same through DLPack.
        again = {**feeds, "key_cache": Foreign(keys), "slots": [0, 7]}
        session.run(again)
        np.testing.assert_array_equal(keys[1, 3, 0], [4, 5, 6, 7])

    def test_types_that_numpy_lacks_are_tensors(self):
        session = self.add("bfloat16")
        one = pagefuse.Tensor(np.full((1, 2), 0x3F80, np.uint16), "bfloat16")
        self.assertEqual((one.dtype, one.shape), ("bfloat16", (1, 2)))
        total = session.run({"a": one, "b": one})["c"]
        self.assertIsInstance(total, pagefuse.Tensor)
        np.testing.assert_array_equal(total.bits(), np.full((1, 2), 0x4000, np.uint16))
        self.assertEqual(total.__dlpack_device__(), (1, 0))

    def test_dlpack_shares_memory_and_keeps_it(self):
        session = self.add()
        ones = np.ones((64, 64), np.float32)
        held = pagefuse.Tensor(session.run({"a": ones, "b": ones})["c"], "float")
        array = np.from_dlpack(held)
        self.assertTrue(np.shares_memory(array, held.bits()))
        del held
        session.run({"a": 2 * ones, "b": ones})
        np.testing.assert_array_equal(array, 2 * ones)

    def test_outputs_outlive_their_session(self):
        session = self.add()
        ones = np.ones((256, 256), np.float32)
        total = session.run({"a": ones, "b": ones})["c"]
        session.run({"a": 5 * ones, "b": ones})
        del session
        np.testing.assert_array_equal(total, 2 * ones)

    def test_errors_say_what_was_expected(self):
        session = self.add()
        ones = np.ones((2, 2), np.float32)
        with self.assertRaisesRegex(ValueError, '"b"'):
            session.run({"a": ones})
        with self.assertRaisesRegex(ValueError, "expected float.*int64"):
            session.run({"a": np.ones((2, 2), np.int64), "b": ones})
        with self.assertRaisesRegex(TypeError, "datetime64"):
            session.run({"a": np.zeros(2, "datetime64[s]"), "b": ones})
        with self.assertRaisesRegex(ValueError, "on the CPU.*got device 2"):
            session.run({"a": OnDevice(ones), "b": ones})
        with self.assertRaises(FileNotFoundError):
            pagefuse.Session("no_such.onnx")
        with self.assertRaisesRegex(ValueError, "threads: expected 0 to 1024, got -1"):
            pagefuse.Session("no_such.onnx", threads=-1)


class EngineTest(unittest.TestCase):
    def test_tokens_are_those_of_the_reference(self):
        engine = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx", require_paged=True)
        self.assertTrue(engine.paged)
        tokens = GREEDY["greedy"]
        found = engine.generate(GREEDY["prompt"], max_new_tokens=len(tokens), stop_tokens=[])
        self.assertEqual(found.tokens.tolist(), tokens)
        self.assertEqual(found.finish, "length")

    def test_batches_samples_and_arrays(self):
        engine = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx", kv_cache="int8_per_token_head")
        prompts = [np.array([2, 5, 9]), [2, 7]]
        alone = [engine.generate(p, max_new_tokens=6, stop_tokens=[]).tokens for p in prompts]
        together = engine.generate(prompts, max_new_tokens=6, stop_tokens=[], logits=True)
        for one, completion in zip(alone, together):
            np.testing.assert_array_equal(one, completion.tokens)
            np.testing.assert_array_equal(completion.logits.argmax(axis=1), completion.tokens)
        drawn = engine.generate([2, 5], max_new_tokens=4, temperature=1.0, seed=7, samples=3, stop_tokens=[])
        again = engine.generate([2, 5], max_new_tokens=4, temperature=1.0, seed=7, samples=3, stop_tokens=[])
        self.assertEqual(len(drawn), 3)
        self.assertEqual([c.tokens.tolist() for c in drawn], [c.tokens.tolist() for c in again])
        self.assertGreater(engine.stats["decode_tokens"], 0)

    def test_completions_tell_what_earlier_prompts_began_with(self):
        engine = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx", block_size=4, prefix_reuse="exact", drafts="off")
        prompt = list(range(2, 22))
        answers = [engine.generate(prompt, max_new_tokens=2, stop_tokens=[]) for _ in range(2)]
        np.testing.assert_array_equal(answers[0].tokens, answers[1].tokens)
        # Two of the 20 are computed at least, behind whole blocks.
        self.assertEqual([a.cached_tokens for a in answers], [0, 16])
        apart = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx", block_size=4, prefix_reuse="off")
        self.assertEqual([apart.generate(prompt, max_new_tokens=2).cached_tokens for _ in range(2)], [0, 0])

    def test_of_several_prompts_each_is_judged_alone(self):
        engine = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx", cache_tokens=64)
        good = [[2, 5, 9], [2, 7]]
        expected = [engine.generate(p, max_new_tokens=6, stop_tokens=[]).tokens.tolist() for p in good]
        for bad, message in (
            ([2, 999], "prompt: token 999 is outside the vocabulary: expected 0 to 255"),
            (list(range(200)), "at 205 tokens, the cache has 44: at most 112 tokens"),
            ([], "prompt: expected one token at least, got none"),
        ):
            with self.subTest(message):
                first, failed, last = engine.generate([good[0], bad, good[1]], max_new_tokens=6, stop_tokens=[])
                self.assertEqual([first.tokens.tolist(), last.tokens.tolist()], expected)
                self.assertEqual((failed.finish, failed.tokens.size, first.error), ("refused", 0, None))
                self.assertIn(message, failed.error)
        with self.assertRaisesRegex(ValueError, "^prompt: token 999 is outside the vocabulary"):
            engine.generate([2, 999])
        with self.assertRaisesRegex(MemoryError, "at most 112 tokens"):
            engine.generate(list(range(100)))
        with self.assertRaisesRegex(ValueError, "^request 0: top_p: expected more than 0"):
            engine.generate(good, top_p=2.0)

    def test_on_token_hears_and_ends(self):
        engine = pagefuse.Engine(MODELS / "gemma3_B18" / "model.onnx")
        heard = []

        def listen(completion, token):
            heard.append(token)
            return len(heard) < 3

        found = engine.generate([2, 5, 9], max_new_tokens=20, stop_tokens=[], on_token=listen)
        self.assertEqual(found.tokens.tolist(), heard)
        self.assertEqual((len(heard), found.finish), (3, "ended"))

        def fail(completion, token):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            engine.generate([2, 5, 9], on_token=fail)
        self.assertEqual(engine.generate([2, 5, 9], max_new_tokens=2, stop_tokens=[]).tokens.shape, (2,))

    def test_folder_text_and_end(self):
        folder = MODELS / "gemma3_recall"
        tokenizer = pagefuse.Tokenizer(folder)
        engine = pagefuse.Engine(folder, kv_cache="fp8_per_token_head")
        text = "What does the red box hold?"
        self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertTrue(engine.end_tokens)
        answer = engine.generate(tokenizer.encode(text), max_new_tokens=200)
        self.assertEqual(answer.finish, "stop")
        self.assertIn(int(answer.tokens[-1]), engine.end_tokens)

    def test_errors(self):
        model = MODELS / "gemma3_B18" / "model.onnx"
        with self.assertRaisesRegex(ValueError, "fp9"):
            pagefuse.Engine(model, kv_cache="fp9")
        engine = pagefuse.Engine(model)
        with self.assertRaisesRegex(ValueError, "prompt"):
            engine.generate([])
        with self.assertRaisesRegex(ValueError, "got 0 dims"):
            engine.generate([[1, 2], np.int64(3)])
        with self.assertRaisesRegex(ValueError, "top_p"):
            engine.generate([2], temperature=1.0, top_p=2.0)


class OptimizeTest(unittest.TestCase):
    def test_writes_a_fused_file(self):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "fused.onnx"
            report = pagefuse.optimize(
                MODELS / "gemma3_B18" / "model.onnx", output, kv_cache="int8_per_token_head"
            )
            self.assertRegex(report.written, "PagedAttention 2.*opset 21")
            self.assertEqual((report.why_not_paged, report.text), ("", ""))
            self.assertGreater(report.rewrites["insert-paged-cache"], 0)
            engine = pagefuse.Engine(output, require_paged=True)
            exported = pagefuse.Engine(
                MODELS / "gemma3_B18" / "model.onnx", kv_cache="int8_per_token_head"
            )
            tokens = [
                e.generate(GREEDY["prompt"], max_new_tokens=8, stop_tokens=[]).tokens.tolist()
                for e in (engine, exported)
            ]
            self.assertEqual(*tokens)

    def test_shows_the_graph_and_says_what_is_left(self):
        report = pagefuse.optimize(MODELS / "gemma3_B18" / "model.onnx", disabled=["insert-paged-cache"])
        self.assertIn("RMSNormalization", report.text)
        place = report.unfused[0]
        self.assertEqual((place.family, place.places), ("attention without pages", 6))
        self.assertTrue(place.node)

    def test_registered_rules_fire(self):
        rule = """# Doubles are shifts here.
# rule: double-is-twice
(x) => (y) { y = Add (x, x) }
# ---- after
(x) => (y) { two = Constant <value_float = 2.0> ()  y = Mul (x, two) }
"""
        with self.assertRaisesRegex(ValueError, r"mine:3:"):
            pagefuse.register_rules(rule.replace("Add (x", "Add (("), name="mine")
        pagefuse.register_rules(rule)
        with self.assertRaisesRegex(ValueError, "double-is-twice"):
            pagefuse.register_rules(rule)
        with tempfile.TemporaryDirectory() as folder:
            path = write_model(
                folder,
                '<ir_version: 10, opset_import: ["" : 21]>\ng (float[N] a) => (float[N] c) { c = Add (a, a) }\n',
            )
            self.assertEqual(pagefuse.optimize(path).rewrites["double-is-twice"], 1)
            session = pagefuse.Session(path)
        self.assertIn("Mul", session.kernels())
        np.testing.assert_array_equal(session.run({"a": np.float32([3])})["c"], [6])

    def test_plugin_of_text_adds_an_op_and_a_rule(self):
        text = """# op: shop.Twice
Twice (x) => (y) { y = Add (x, x) }
# rule: shop-twice
(x) => (y) { two = Constant <value_float: float = 2.0> ()  y = Mul (x, two) }
# ---- after
(x) => (y) { y = shop.Twice (x) }
"""
        with self.assertRaises(FileNotFoundError):
            pagefuse.load_plugin("/none/shop.txt")
        with tempfile.TemporaryDirectory() as folder:
            wrong = Path(folder) / "wrong.txt"
            wrong.write_text(text.replace("Add (x", "Add (("))
            with self.assertRaisesRegex(ValueError, r"wrong.txt:2:"):
                pagefuse.load_plugin(wrong)
            shop = Path(folder) / "shop.txt"
            shop.write_text(text)
            plugin = pagefuse.load_plugin(shop)
            self.assertEqual(plugin, pagefuse.load_plugin(str(shop)))
            path = write_model(
                folder,
                '<ir_version: 10, opset_import: ["" : 21]>\ng (float[N] a) => (float[N] c) {\n'
                "  two = Constant <value_float: float = 2.0> ()\n  c = Mul (a, two)\n}\n",
            )
            session = pagefuse.Session(path)
        self.assertEqual((plugin.name, plugin.ops, plugin.rules), ("shop", ["shop.Twice"], ["shop-twice"]))
        self.assertIn("shop.Twice", session.kernels())
        np.testing.assert_array_equal(session.run({"a": np.float32([3])})["c"], [6])

    def test_library_for_onnx_runtime_is_there(self):
        self.assertTrue(pagefuse.ort_library_path().is_file())

    def test_unknown_names_are_errors(self):
        with self.assertRaisesRegex(FileNotFoundError, "rms-nrm.*rms-norm"):
            pagefuse.optimize(MODELS / "gemma3_B18" / "model.onnx", disabled=["rms-nrm"])


if __name__ == "__main__":
    unittest.main()
