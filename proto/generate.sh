#!/bin/sh
# Write reactor/kubelet/_pb from proto/*.proto. `make proto` runs this and expects a clean tree afterwards.
# Generated code refuses a protobuf runtime older than its generator: grpcio-tools and protobuf are locked together,
# and the last line here imports the result to prove that they fit.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
bin=$(dirname "$(command -v "$python")")
out=reactor/kubelet/_pb
mkdir -p "$out"
rm -f "$out"/*_pb2.py "$out"/*_pb2.pyi "$out"/*_grpc.py
"$python" -m grpc_tools.protoc -I"$out"=proto \
    --plugin=protoc-gen-grpclib_python="$bin/protoc-gen-grpclib_python" \
    --python_out=. --pyi_out=. --grpclib_python_out=. \
    "$out"/deviceplugin.proto "$out"/podresources.proto "$out"/pluginregistration.proto
"$python" -W error -c "import reactor.kubelet._pb.deviceplugin_grpc, reactor.kubelet._pb.podresources_grpc, \
reactor.kubelet._pb.pluginregistration_grpc"
