"""Stream an answer with plain grpcio: python examples/generate.py [PROMPT] [HOST:PORT]"""

import sys

import grpc

from pilotfish.rpc.v1 import inference_pb2, inference_pb2_grpc

prompt = sys.argv[1] if len(sys.argv) > 1 else "Why do fish swim in schools?"
address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:50051"
chat = inference_pb2.ChatPrompt(messages=[inference_pb2.ChatMessage(role="user", content=prompt)])
request = inference_pb2.GenerateRequest(chat=chat, max_tokens=128, temperature=0)

with grpc.insecure_channel(address) as channel:
    stub = inference_pb2_grpc.InferenceStub(channel)
    for message in stub.Generate(request, timeout=300):
        if message.HasField("chunk"):
            print(message.chunk.text, end="", flush=True)
        else:
            speculation, usage = message.summary.speculation, message.summary.usage
            print(f"\n{usage.output_tokens} tokens, {speculation.num_accepted_tokens} of them drafted and accepted")
