"""Config edited: parsed whole, the plan follows, and only what is touched by it moves."""

from __future__ import annotations

from reactor.simulate.node import GPU


async def test_an_edit_changes_the_list_on_the_same_stream(flow, seen, autojump_clock):
    async with flow() as node:
        (stream,) = node.state.kubelet.plugins[GPU].streams
        node.share(4)
        await node.settle()
        assert node.healthy() == node.shares(0, 1, replicas=4)
        assert node.unhealthy() == {node.gpu(0), node.gpu(1)}
        await node.settle(10)
        assert node.healthy() == set(node.listed()) == node.shares(0, 1, replicas=4)
        assert node.state.kubelet.plugins[GPU].streams == {stream}
        assert seen.sent(GPU) == 3


async def test_an_edit_back_before_the_old_ids_went_keeps_them(flow, seen, autojump_clock):
    async with flow() as node:
        node.share(2)
        await node.settle(1)
        node.share(0)
        await node.settle(10)
        assert set(node.listed()) == node.healthy() == {node.gpu(0), node.gpu(1)}
        assert seen.history(node.gpu(0)) == "HUH"


async def test_text_that_means_the_same_is_no_edit(flow, seen, autojump_clock):
    async with flow() as node:
        node.edit_config("# only a comment\nversion: v1\n")
        await node.settle(10)
        assert seen.sent(GPU) == 1


async def test_a_resource_that_the_edit_leaves_alone_is_sent_nothing(flow, seen, autojump_clock):
    """Each product has its own name here; one of them is shared."""
    config = (
        "version: v1\nresources: {{gpus: [{{pattern: '*H100*', name: nvidia.com/h100}},"
        " {{pattern: '*T4*', name: nvidia.com/t4}}]}}\n"
        "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/h100, replicas: {}}}]}}}}\n"
    )
    async with flow(gpus="1xH100+1xT4", config=config.format(2)) as node:
        (stream,) = node.state.kubelet.plugins["nvidia.com/t4"].streams
        node.edit_config(config.format(3))
        await node.settle(10)
        assert len(node.healthy("nvidia.com/h100")) == 3
        assert seen.sent("nvidia.com/t4") == 1
        assert node.state.kubelet.plugins["nvidia.com/t4"].streams == {stream}


async def test_renamed_shares_move_to_the_new_resource_and_the_old_one_closes(flow, seen, autojump_clock):
    async with flow(replicas=2) as node:
        node.share(2, rename="nvidia.com/gpu.shared")
        await node.settle(10)
        assert node.healthy("nvidia.com/gpu.shared") == node.shares(0, 1, replicas=2)
        assert node.listed() == {}
        assert set(node.state.kubelet.plugins) == {"nvidia.com/gpu.shared"}
        assert node.kubelet.streams(GPU) == 0


async def test_the_log_names_each_key_that_changed_once(flow, log, autojump_clock):
    async with flow(replicas=2) as node:
        node.share(4)
        await node.settle(1)
        changes = log.of("config.applied")[-1]["changes"]
        paths = [change["path"] for change in changes]
        assert ("2", "4") in [(change["before"], change["after"]) for change in changes], changes
        assert len(set(paths)) == len(paths)
