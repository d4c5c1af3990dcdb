"""Prints what the package offers: its calls with their parameters, and the members of its types."""
import dataclasses
import inspect
import json
import typing

import verifyd


def shape(kind):
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, vars(verifyd))
        return {f.name: shape(hints[f.name]) for f in dataclasses.fields(kind)}
    args = typing.get_args(kind)
    if args and dataclasses.is_dataclass(args[0]):
        return shape(args[0]) if typing.get_origin(kind) is typing.Union else [shape(args[0])]
    return ""


calls = {
    name: [p for p in inspect.signature(call).parameters if p != "self"]
    for name, call in inspect.getmembers(verifyd.Client, inspect.isfunction) if not name.startswith("_")
}
refused = {name: "" for name in vars(verifyd.Refused(400, {}, 0.0))}
refused["fields"] = [shape(verifyd.Field)]
print(json.dumps({"calls": calls, "types": {
    "Started": {**shape(verifyd.Started), "id": ""}, "Session": shape(verifyd.Session),
    "Result": shape(verifyd.Result), "Refused": refused,
}}))
