"""A Kubernetes API over HTTP in pure Python: real rules, nothing behind it but what this process plays.

Read in this order:

``store`` · ``memory`` · ``requests``       objects, versions, watches; the verbs, and how controllers use them
``kinds`` · ``catalogue`` · ``definitions``   what can be stored; ``set_kinds`` and ``path_kinds`` as CRDs say it
``writes`` · ``patches`` · ``ownership``      what happens to a write, step by step (``scale``, ``fields``)
``rules``                               defaults and validation: ``schema`` for custom kinds, ``builtin_defaults``,
                                        ``builtin_rules``, ``respelling`` for built-in ones
``policies`` · ``webhooks`` · ``quotas``      admission: ``matching``, ``expressions``, ``sets``, ``escalation``
``server`` · ``address`` · ``verbs``          the same over HTTP: ``accounts``, ``rights``, ``listing``, ``streams``,
                                        ``discovery``, ``reviews``, ``below``
``parts`` · ``garbage`` · ``namespaces``      what runs beside it; ``controllers`` make it a whole cluster
``faults`` · ``admin``                    what can be made to go wrong, in process and over HTTP
``emulator`` · ``furnishing``             one running emulator, with the face of the rig
``differences``                         where it is knowingly not like a real one
"""

from deploy.demo.emulator.emulator import Emulator as Emulator
