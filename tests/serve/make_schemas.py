#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes schemas.json: JSON schemas of the supported subset, some by hand, the rest drawn at random, each with documents
that are valid and documents that are not, as the package jsonschema judges. The same file each time.

    tests/serve/make_schemas.py > tests/serve/schemas.json
"""
import json
import random
import sys

from jsonschema import Draft202012Validator

from json_formats import judge

COUNT = 200
WORDS = ["name", "id", "city", "größe", "date", "tags", "kind", "value", "x", "a b", "q\"uote", "next", "url", "unit", "日本"]
TEXTS = ["", "a", "hello", "two words", "tab\there", "quote \" and \\", "grüße", "日本語", "😀 smile", "line\nend", "\u0001", "</s>"]

HAND = [
    ("anything", {}, [1, "a", None, {"a": [True]}], []),
    ("true", True, [[], {}], []),
    ("any object", {"type": "object"}, [{}, {"a": {"b": [1, {}]}}], [[], 1, "a"]),
    ("any array", {"type": "array"}, [[], [1, "a", [[]]]], [{}, 1]),
    ("tool call", {"type": "object", "properties": {
        "city": {"type": "string", "description": "where"}, "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city", "days"],
        "additionalProperties": False}, [{"city": "Köln", "days": 3}, {"city": "", "unit": "celsius", "days": 14}],
     [{"city": "a"}, {"city": "a", "days": 15}, {"city": "a", "unit": "kelvin", "days": 1}]),
    ("optional members", {"type": "object", "properties": {c: {"type": "integer"} for c in "abcd"}},
     [{}, {"a": 1}, {"b": 2, "d": 4}, {"a": 1, "b": 2, "c": 3, "d": 4}], [{"a": "x"}]),
    ("open object", {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}},
                     "additionalProperties": {"type": "string"}},
     [{"a": 1}, {"a": 1, "b": "x"}, {"abc": "x"}, {"ab": None, "": "y"}], [{"a": "x"}, {"c": 1}, {"ab": "x"}]),
    ("required of others", {"type": "object", "required": ["z"]}, [{"z": 1}, {"z": [], "y": 2}], [{}, {"y": 1}]),
    ("map", {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}},
     [{}, {"a": [], "b": [True, False]}], [{"a": 1}, {"a": [1]}]),
    ("empty object", {"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
    ("tuple", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False, "minItems": 2},
     [["a", 1]], [["a"], [1, "a"], ["a", 1, 2]]),
    ("tuple and more", {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}},
     [[], ["a"], ["a", None, None]], [[None], ["a", 1]]),
    ("counted items", {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
     [[True, False], [True] * 4], [[True], [True] * 5]),
    ("no items", {"type": "array", "maxItems": 0}, [[]], [[1]]),
    ("types", {"type": ["string", "null", "integer"]}, ["a", None, -7], [True, 1.5, []]),
    ("enum of all", {"enum": ["a", 1, None, True, {"a": [1]}, [], 2.5]}, ["a", 1, None, {"a": [1]}, [], 2.5], ["b", 2, {}]),
    ("typed enum", {"type": "string", "enum": ["a", 1, "ab", None]}, ["a", "ab"], [1, None, "abc"]),
    ("bounded enum", {"enum": ["a", "abc", "abcdef"], "type": "string", "minLength": 2}, ["abc", "abcdef"], ["a"]),
    ("const", {"const": {"kind": "x", "n": [1, 2]}}, [{"kind": "x", "n": [1, 2]}], [{"kind": "x"}, 1]),
    ("alternatives", {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "integer"}]}, ["abc", 5], ["abcd", 1.5]),
    ("tagged", {"anyOf": [
        {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
         "required": ["kind", "r"], "additionalProperties": False},
        {"type": "object", "properties": {"kind": {"const": "cube"}, "side": {"type": "integer"}},
         "required": ["kind", "side"], "additionalProperties": False}]},
     [{"kind": "circle", "r": 1.5}, {"kind": "cube", "side": 2}],
     [{"kind": "circle", "side": 2}, {"kind": "cube", "r": 1}, {"kind": "cub"}]),
    ("list", {"$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["value", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
     [{"value": 1, "next": None}, {"value": 1, "next": {"value": 2, "next": None}}], [{"value": 1}, {"value": 1, "next": 2}]),
    ("tree", {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
              "required": ["children"], "additionalProperties": False},
     [{"children": []}, {"children": [{"children": []}, {"children": [{"children": []}]}]}], [{}, {"children": [1]}]),
    ("definitions", {"definitions": {"a~b/c": {"type": "boolean"}}, "type": "array",
                     "items": {"$ref": "#/definitions/a~0b~1c"}}, [[], [True]], [[1]]),
    ("expression", {"$defs": {"e": {"anyOf": [{"type": "integer"}, {"type": "array", "prefixItems": [
        {"$ref": "#/$defs/e"}, {"enum": ["+", "-"]}, {"$ref": "#/$defs/e"}], "items": False, "minItems": 3}]}},
        "$ref": "#/$defs/e"}, [1, [1, "+", [2, "-", 3]]], [[1, "+"], "+"]),
    ("ambiguous", {"$defs": {"n": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}},
                                             {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 2}]}},
                   "$ref": "#/$defs/n"}, [[], [[[]], [], [[], []]]], [1, [[1]]]),
    ("lengths", {"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "😀😀", "a\n\"b"], ["a", "abcde", "😀"]),
    ("long", {"type": "string", "maxLength": 300}, ["", "é" * 300], ["é" * 301]),
    ("at least", {"type": "string", "minLength": 3}, ["abc", "日本語"], ["ab", "日本"]),
    ("pattern", {"type": "string", "pattern": "^[A-Z]{3}-\\d{4}$"}, ["ABC-1234"], ["abc-1234", "ABC-12345", "xABC-1234"]),
    ("pattern within", {"type": "string", "pattern": "b+"}, ["b", "abba", "a\"b"], ["", "a"]),
    ("pattern and lengths", {"type": "string", "pattern": "^(ab|cd)*$", "minLength": 3, "maxLength": 6},
     ["abcd", "cdcdab"], ["ab", "abcdabcd", "abc"]),
    ("pattern of words", {"type": "string", "pattern": "^\\w+@\\w+\\.(com|org)$"}, ["a_1@b.org"], ["a@b", "@b.com"]),
    ("pattern of escapes", {"type": "string", "pattern": "^[\"\\\\\\n/]{1,3}$"}, ["\"", "\\\n/"], ["a", "\t"]),
    ("pattern of others", {"type": "string", "pattern": "^[^a-z]{2}$"}, ["AB", "日1"], ["ab", "A"]),
    ("date", {"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "2024-1-1"]),
    ("time", {"type": "string", "format": "time"}, ["23:59:59Z", "00:00:00.25+01:30"], ["24:00:00Z", "1:00:00Z"]),
    ("date-time", {"type": "string", "format": "date-time"}, ["2024-02-29T12:00:00Z", "2000-01-01T00:00:00.5-08:00"],
     ["2024-02-30T12:00:00Z", "2024-02-29"]),
    ("uuid", {"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567e89b12d3a456426614174000"]),
    ("ipv4", {"type": "string", "format": "ipv4"}, ["0.0.0.0", "255.249.199.10"], ["256.0.0.1", "1.2.3"]),
    ("from 0", {"type": "integer", "minimum": 0}, [0, 1, 10**18], [-1, 1.5]),
    ("up to -3", {"type": "integer", "maximum": -3}, [-3, -4, -100], [-2, 0, 5]),
    ("around 0", {"type": "integer", "minimum": -12, "maximum": 345}, [-12, -1, 0, 345, 99], [-13, 346, 1000]),
    ("exclusive", {"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 101}, [10, 100, 57], [9, 101]),
    ("between", {"type": "integer", "minimum": 17.5, "maximum": 1234567.5}, [18, 1234567, 99999], [17, 1234568]),
    ("number", {"type": "number"}, [0, -1.5, 1e300, 2.5e-7, 123456789012], ["1", None]),
    ("without a type", {"properties": {"a": {"minLength": 1}}, "required": ["a"]}, [{"a": "b"}], [{"a": ""}, {}]),
    ("nested all", {"allOf": [{"type": "array", "items": {"allOf": [{"type": "null"}]}}]}, [[None]], [[1]]),
    ("names alike", {"type": "object", "properties": {n: {"type": "boolean"} for n in ["a", "ab", "abc", "b"]},
                     "required": ["ab"], "additionalProperties": False},
     [{"ab": True}, {"a": True, "ab": False, "abc": True, "b": True}], [{"a": True}, {"abc": True}]),
    ("odd names", {"type": "object", "properties": {"\"": {"type": "null"}, "\\": {"type": "null"}, "\n": {"type": "null"},
                                                   "é😀": {"type": "null"}}, "required": ["\"", "é😀"]},
     [{"\"": None, "é😀": None}, {"\"": None, "\\": None, "\n": None, "é😀": None}], [{"\"": None}]),
]


class Drawn:
    """Schemas at random, each with a function that makes a document for it."""

    def __init__(self, seed):
        self.r = random.Random(seed)

    def schema(self, depth):
        kinds = [self.string, self.integer, self.scalar, self.enum, self.pattern, self.date]
        if depth > 0:
            kinds += [self.object, self.object, self.array, self.tuple, self.either, self.map]
        return self.r.choice(kinds)(depth)

    def string(self, _):
        least, most = sorted([self.r.randrange(6), self.r.randrange(12)])
        schema = {"type": "string"}
        if self.r.random() < 0.5:
            schema["minLength"] = least
        if self.r.random() < 0.5:
            schema["maxLength"] = most
        return schema, lambda: (self.r.choice(TEXTS) + "xyzäöü")[:most] if least == 0 else "äbcdefghijkl"[:self.r.randint(least, most)]

    def integer(self, _):
        low, high = sorted([self.r.randrange(-10**self.r.randrange(1, 9), 10**self.r.randrange(1, 9)) for _ in range(2)])
        schema = {"type": "integer"}
        if self.r.random() < 0.7:
            schema["minimum"] = low
        if self.r.random() < 0.7:
            schema["maximum"] = high
        return schema, lambda: self.r.randint(low, high)

    def scalar(self, _):
        return self.r.choice([({"type": "boolean"}, lambda: True), ({"type": "null"}, lambda: None),
                              ({"type": "number"}, lambda: self.r.choice([0, -2.5, 1e30, 17])),
                              ({}, lambda: self.r.choice([1, "any", [None], {"k": {}}])),
                              ({"type": ["integer", "string"]}, lambda: self.r.choice([3, "three"]))])

    def enum(self, _):
        values = self.r.sample(TEXTS + [1, 22, None, [1, [2]], {"a": "b"}], self.r.randint(1, 5))
        return {"enum": values}, lambda: self.r.choice(values)

    def pattern(self, _):
        pattern, texts = self.r.choice([
            ("^[a-z]+$", ["abc", "z"]), ("^[0-9]{2,4}$", ["12", "1234"]), ("^(foo|bar)(,(foo|bar))*$", ["foo", "bar,foo"]),
            ("^#[0-9a-fA-F]{6}$", ["#12aBcD"]), ("x.z", ["xyz", "axyzb"]), ("^v\\d+\\.\\d+$", ["v1.0"]), ("^[^ \\t]*$", ["", "ab"]),
            ("^\\+?\\d{3}[-\\s]?\\d{4}$", ["+123-4567", "1234567"]), ("ü$", ["grün ü"])])
        return {"type": "string", "pattern": pattern}, lambda: self.r.choice(texts)

    def date(self, _):
        name, texts = self.r.choice([("date", ["2020-02-29"]), ("time", ["01:02:03Z"]), ("ipv4", ["127.0.0.1"]),
                                     ("date-time", ["2021-12-31T23:59:59+14:00"]),
                                     ("uuid", ["00000000-0000-0000-0000-00000000000F"])])
        return {"type": "string", "format": name}, lambda: self.r.choice(texts)

    def object(self, depth):
        members = {name: self.schema(depth - 1) for name in self.r.sample(WORDS, self.r.randint(1, 5))}
        required = [name for name in members if self.r.random() < 0.5]
        schema = {"type": "object", "properties": {n: s for n, (s, _) in members.items()}}
        if required:
            schema["required"] = required
        if self.r.random() < 0.5:
            schema["additionalProperties"] = self.r.choice([False, True, {"type": "integer"}])
        return schema, lambda: {n: make() for n, (_, make) in members.items() if n in required or self.r.random() < 0.5}

    def map(self, depth):
        schema, make = self.schema(depth - 1)
        return ({"type": "object", "additionalProperties": schema},
                lambda: {name: make() for name in self.r.sample(WORDS, self.r.randrange(3))})

    def array(self, depth):
        schema, make = self.schema(depth - 1)
        least, most = sorted([self.r.randrange(4), self.r.randrange(6)])
        return ({"type": "array", "items": schema, "minItems": least, "maxItems": most},
                lambda: [make() for _ in range(self.r.randint(least, most))])

    def tuple(self, depth):
        parts = [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]
        return ({"type": "array", "prefixItems": [s for s, _ in parts], "items": False, "minItems": len(parts)},
                lambda: [make() for _, make in parts])

    def either(self, depth):
        parts = [self.schema(depth - 1) for _ in range(self.r.randint(2, 3))]
        return {"anyOf": [s for s, _ in parts]}, lambda: self.r.choice(parts)[1]()


def entry(name, schema, valid, invalid):
    Draft202012Validator.check_schema(schema)
    for document in valid:
        assert judge(schema).is_valid(document), (name, document)
    for document in invalid:
        assert not judge(schema).is_valid(document), (name, document)
    return {"name": name, "schema": schema, "valid": valid, "invalid": invalid}


def drawn_entry(number):
    draw = Drawn(number)
    schema, make = draw.schema(3)
    valid = [document for document in (make() for _ in range(3)) if judge(schema).is_valid(document)]
    others = [1, "", "no", None, True, [], {}, {"a": 1}, [[]], -0.5] + [[d] for d in valid] + [{"name": d} for d in valid]
    invalid = [document for document in others if not judge(schema).is_valid(document)][:3]
    return entry(f"drawn {number}", schema, valid, invalid)


def main():
    entries = [entry(*hand) for hand in HAND]
    entries += [drawn_entry(number) for number in range(COUNT - len(entries))]
    print("[")
    print(",\n".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) for e in entries))
    print("]")


if __name__ == "__main__":
    sys.exit(main())
