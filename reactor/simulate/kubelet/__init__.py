"""A kubelet as device plugins know it, in its versions from 1.29 on, with its bugs.

``core`` is one life of a kubelet without runtime or clock; ``memory`` joins it to the agent's desk under trio;
``grpc`` puts it on real unix sockets. A plugin that would end a real kubelet raises ``KubeletPanic``.
"""
