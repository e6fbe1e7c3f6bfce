"""What lives on the emulated cluster: the programs that a real one has beside its API server.

====================  ==============================================================================================
``lws``               the LeaderWorkerSet manager: ``disaggregated`` (with ``executor``, ``private_services``,
                      ``scalers``, ``set_status``), ``group_sets``, ``group_pods``, and ``pod_webhook``
``controller-manager``  ``stateful_sets``, ``replica_sets``, ``deployments``, ``jobs``, ``node_lifecycle``
``scheduler``         ``scheduler`` with ``placing``
``kubelets``          ``kubelets`` with ``behaviours``, ``pod_status``, ``images``
====================  ==============================================================================================

``cluster.Cluster`` puts them together. A controller sees and writes through ``hands``; a ``program`` runs controllers
and is a ``parts.Part``: it can be paused, stopped, crashed and made to see late.
"""
