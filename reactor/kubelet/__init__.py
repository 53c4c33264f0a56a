"""The facade of the kubelet: gRPC servers, Register, and its books. The only importer of grpclib; knows no events."""
