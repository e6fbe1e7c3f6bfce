"""Scalers of a held set: seen, paused for as long as an operation holds it, and given back exactly.

An operation that uses the two steps (`holds.pause_scalers`, `holds.give_back_scalers`) has in its memory:

* `namespace`, `name`, `uid` of its set and `installation` (put there by its kind), and
* `scalers`: UID → what was changed on that object (`mark.Mark` as JSON, with kind and name), filled by pausing, emptied
  by giving back. A superseding operation inherits it with the rest of the memory.

The same record stands on the object, in the annotation `lockstep.dev/paused`, written in one request with the pause: a
worker that is lost between the write and the database finds it there.
"""
