"""Where the controllers and kubelets of the emulator are knowingly not like real ones; see ``emulator.differences``.
Each entry is shown by a test in tests/demo/emulator/controllers/test_differences.py."""

from __future__ import annotations

from deploy.demo.emulator.differences import Difference

LIVING = (
    Difference(
        "revision-labels",
        "The label of a set's revision is the hash of Go structures, other digits for the same content.",
        "The hash of the same content as JSON without what is empty: what rolls there rolls here, the digits differ.",
    ),
    Difference(
        "controller-revisions",
        "LeaderWorkerSets and StatefulSets keep their templates as ControllerRevisions.",
        "They do not: only the labels and names of revisions are there.",
    ),
    Difference(
        "updates-inside-a-group-set",
        "A changed template of a LeaderWorkerSet rolls by its partition, surge and unavailable groups.",
        "Leaders are replaced one by one from the highest index, and their workers with them; no surge.",
    ),
    Difference(
        "placement-policy",
        "placementPolicy of a newer set becomes affinity in its children.",
        "It is stored and does nothing; the exclusive-topology annotation of a role works.",
    ),
    Difference(
        "preemption",
        "The scheduler scores nodes in many ways, honours spread constraints, and evicts less important pods.",
        "The emptiest node that takes the pod; required affinity, selectors, taints and resources count, no more.",
    ),
    Difference(
        "lost-nodes",
        "A node is lost when its kubelet stops renewing a Lease.",
        "When it carries the annotation rig.lockstep.dev/kubelet: gone; there are no Leases of nodes.",
    ),
    Difference(
        "nothing-runs",
        "Containers run, are probed, and have hooks and logs.",
        "A pod does what its behaviour says; only programs of the runner run, with what the rig plays of a kubelet.",
    ),
    Difference(
        "jobs-that-hang",
        "(On the rig every pod of a Job completes at once, whatever its behaviour.)",
        "A pod of a Job completes after a setting's time; one that crashes fails, one that is never ready hangs.",
    ),
    Difference(
        "autoscalers",
        "HorizontalPodAutoscalers, KEDA and Knative scale what they aim at.",
        "They are stored and scale nothing.",
    ),
    Difference(
        "volume-claims",
        "Claims are bound to volumes, and StatefulSets make claims for their pods.",
        "Claims are stored, and nobody makes or binds any.",
    ),
)
