"""A server that speaks MongoDB's wire protocol, for tests where there is no MongoDB: a collection in a list.

It has what the store asks for, and answers everything else with an error: hello, ping, find (equality, $in, $regex),
aggregate ($match and $binarySize), insert, update (replacing, with upsert), delete, createIndexes, endSessions. It
proves that the driver's messages are what the store means; it does not prove how MongoDB itself behaves.

Source: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/ (OP_MSG)
"""

import re
import socketserver
import struct
import threading
from typing import Any

import bson

HEADER = struct.Struct("<iiii")
OP_MSG, OP_QUERY, OP_REPLY = 2013, 2004, 1
HELLO = {
    "ismaster": True,
    "isWritablePrimary": True,
    "helloOk": True,
    "maxBsonObjectSize": 16 << 20,
    "maxMessageSizeBytes": 48_000_000,
    "maxWriteBatchSize": 100_000,
    "minWireVersion": 0,
    "maxWireVersion": 21,
    "readOnly": False,
    "logicalSessionTimeoutMinutes": 30,
    "ok": 1,
}


class Server(socketserver.ThreadingTCPServer):
    """Serves databases that live in memory."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.collections: dict[str, list[dict[str, Any]]] = {}
        self.lock = threading.Lock()
        self.commands: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Connection(socketserver.StreamRequestHandler):
    """Answers one client's messages."""

    server: Server

    def handle(self) -> None:
        while head := self.rfile.read(HEADER.size):
            length, request_id, _, opcode = HEADER.unpack(head)
            body = self.rfile.read(length - HEADER.size)
            if opcode == OP_QUERY:  # the first message of a driver that knows nothing of the server
                reply = struct.pack("<iqii", 8, 0, 0, 1) + bson.encode(HELLO)
                self.wfile.write(HEADER.pack(HEADER.size + len(reply), 0, request_id, OP_REPLY) + reply)
                continue
            answer = self.answer(parse(body))
            reply = struct.pack("<iB", 0, 0) + bson.encode(answer)
            self.wfile.write(HEADER.pack(HEADER.size + len(reply), 0, request_id, OP_MSG) + reply)

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(command))
        with self.server.lock:
            self.server.commands.append(name)
            if name in ("hello", "ismaster", "isMaster"):
                return HELLO
            if name in ("ping", "endSessions", "createIndexes"):
                return {"ok": 1}
            documents = self.server.collections.setdefault(str(command[name]), [])
            if name == "find":
                found = [d for d in documents if matches(d, command["filter"])]
                return cursor([{k: v for k, v in d.items() if k != "_id"} for d in found])
            if name == "aggregate":
                stages = command["pipeline"]
                assert [next(iter(stage)) for stage in stages] == ["$match", "$project"]
                found = [d for d in documents if matches(d, stages[0]["$match"])]
                return cursor([{"key": d["key"], "nbytes": len(d["value"])} for d in found])
            if name == "delete":
                return {"ok": 1, "n": sum(remove(documents, deleted["q"]) for deleted in command["deletes"])}
            if name == "update":
                return {"ok": 1, "nModified": 0, **replace(documents, command["updates"])}
            if name == "insert":
                return {"ok": 1, **insert(documents, command["documents"])}
        return {"ok": 0, "errmsg": f"no such command: {name}", "code": 59}


def parse(body: bytes) -> dict[str, Any]:
    """The command of an OP_MSG, with its document sequences as fields."""
    at, command = 4, {}
    sequences: dict[str, list[Any]] = {}
    while at < len(body):
        kind, at = body[at], at + 1
        (nbytes,) = struct.unpack_from("<i", body, at)
        section = body[at : at + nbytes]
        at += nbytes
        if kind == 0:
            command = bson.decode(section)
        else:
            name, _, rest = section[4:].partition(b"\0")
            sequences[name.decode()] = bson.decode_all(rest)
    return {**command, **sequences}


def cursor(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": 1, "cursor": {"id": bson.Int64(0), "ns": "x.y", "firstBatch": documents}}


def matches(document: dict[str, Any], query: dict[str, Any]) -> bool:
    for name, wanted in query.items():
        value = document.get(name)
        if not isinstance(wanted, dict):
            good = value == wanted
        elif "$in" in wanted:
            good = value in wanted["$in"]
        else:
            good = re.search(wanted["$regex"], str(value)) is not None
        if not good:
            return False
    return True


def replace(documents: list[dict[str, Any]], updates: list[dict[str, Any]]) -> dict[str, Any]:
    done, upserted = 0, []
    for index, update in enumerate(updates):
        found = remove(documents, update["q"])
        if found or update.get("upsert"):
            documents.append({"_id": bson.ObjectId(), **update["u"]})
            done += 1
            upserted += [] if found else [{"index": index, "_id": documents[-1]["_id"]}]
    return {"n": done, **({"upserted": upserted} if upserted else {})}


def insert(documents: list[dict[str, Any]], new: list[dict[str, Any]]) -> dict[str, Any]:
    """Insert documents whose keys are not there: the one index that the store makes is unique."""
    taken = {document["key"] for document in documents}
    errors = [
        {"index": index, "code": 11000, "errmsg": f"E11000 duplicate key error: {document['key']}"}
        for index, document in enumerate(new)
        if document["key"] in taken
    ]
    documents += [document for document in new if document["key"] not in taken]
    return {"n": len(new) - len(errors), **({"writeErrors": errors} if errors else {})}


def remove(documents: list[dict[str, Any]], query: dict[str, Any]) -> int:
    kept = [d for d in documents if not matches(d, query)]
    count = len(documents) - len(kept)
    documents[:] = kept
    return count
