# SPDX-License-Identifier: Apache-2.0
"""A judge of JSON documents that knows the formats of the supported subset, whatever packages there are beside jsonschema."""
import datetime
import re

from jsonschema import Draft202012Validator, FormatChecker

CHECKER = FormatChecker(formats=())
TIME = r"\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})"


def is_date(text):
    return re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII) and bool(datetime.date.fromisoformat(text))


def is_time(text):
    if not re.fullmatch(TIME, text, re.ASCII):
        return False
    return datetime.time.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00")) is not None


def is_date_time(text):
    return text[10:11] == "T" and is_date(text[:10]) and is_time(text[11:])


def is_uuid(text):
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text, re.ASCII | re.IGNORECASE)


def is_ipv4(text):
    parts = text.split(".")
    return len(parts) == 4 and all(re.fullmatch(r"0|[1-9]\d{0,2}", part, re.ASCII) and int(part) < 256 for part in parts)


for name, holds in {"date": is_date, "time": is_time, "date-time": is_date_time, "uuid": is_uuid, "ipv4": is_ipv4}.items():
    CHECKER.checks(name, raises=ValueError)(lambda value, holds=holds: not isinstance(value, str) or bool(holds(value)))


def judge(schema):
    return Draft202012Validator(schema, format_checker=CHECKER)
