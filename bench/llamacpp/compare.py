"""Compares demo serve with llama.cpp: the same GGUF file, the same tokens, the same
number of threads, in turns.

    pip install xllamacpp
    go build -o demo ./cmd/demo                             # plain Go
    GOEXPERIMENT=simd go build -o demo-simd ./cmd/demo      # AVX2, the same bits
    python bench/llamacpp/compare.py MODEL.gguf ./demo ./demo-simd

Each round runs every program, a prompt with one new token and then the same prompt
with NEW more. The difference is what decoding takes. Rates are tokens by second of
processor time of the whole program, the server of demo serve included, so they say the
same on a busy machine; with one thread that is the time that a client waits on an idle
one. Ratios are medians over rounds. Times to the first token are those that a client
sees. Set THREADS, PROMPT, NEW and ROUNDS to change them.
"""

import json, os, statistics, subprocess, sys, time, urllib.request

THREADS, PROMPT, NEW, ROUNDS, LONG = (int(os.environ.get(k, v)) for k, v in dict(THREADS=1, PROMPT=512, NEW=32, ROUNDS=5, LONG=1500).items())


class Ours:
    """demo serve, as a child process."""

    def __init__(self, program, model):
        self.name = os.path.basename(program)
        self.child = subprocess.Popen(
            [program, "serve", "--model", model, "--listen", "127.0.0.1:0", "--max-len", "2048", "--chunk", "512", "--step-tokens", "512"],
            stderr=subprocess.PIPE, text=True, env=os.environ | {"GOMAXPROCS": str(THREADS)})
        for line in self.child.stderr:
            if "http://" in line:
                self.url = line.split()[-1]
                break
        else:
            raise SystemExit(f"{program} does not serve")
        with urllib.request.urlopen(self.url + "/models") as r:
            self.model = json.load(r)["data"][0]["id"]

    def run(self, tokens, new, salt):
        """Seconds to the first token, and from the first to the last."""
        body = {"model": self.model, "prompt": tokens, "max_tokens": new, "temperature": 0, "stream": True, "cache_salt": salt,
                "logprobs": 0, "stream_options": {"include_usage": True}}
        begin, first, cached, made = time.perf_counter(), None, 0, 0
        request = urllib.request.Request(self.url + "/completions", json.dumps(body).encode())
        with urllib.request.urlopen(request) as r:
            for line in r:
                if first is None and line.startswith(b"data: "):
                    first = time.perf_counter() - begin
                if b'"prompt_tokens"' in line:
                    usage = json.loads(line[6:])["usage"]
                    made, cached = usage["completion_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
        return first, time.perf_counter() - begin - first, made, cached

    def busy(self, tokens, new, salt):
        """Seconds of processor time that a request takes."""
        begin = self.processor()
        _, _, made, cached = self.run(tokens, new, salt)
        assert (made, cached) == (new, 0), (made, cached)
        return self.processor() - begin

    def processor(self):
        with open(f"/proc/{self.child.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.child.terminate()
        self.child.wait()


class Theirs:
    """llama.cpp, in this process."""

    name = "llama.cpp"

    def __init__(self, model):
        import xllamacpp as x

        p = x.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.n_gpu_layers = model, 2048, 1, 0
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = THREADS
        p.cache_prompt = False
        p.n_batch = p.n_ubatch = 512
        self.server = x.Server(p)

    def busy(self, tokens, new, salt):
        begin = time.process_time()
        answer = self.server.handle_completions({"prompt": tokens, "n_predict": new, "temperature": 0, "cache_prompt": False, "ignore_eos": True})
        answer = json.loads(answer) if isinstance(answer, str) else answer
        took = time.process_time() - begin
        assert (answer["timings"]["prompt_n"], answer["timings"]["predicted_n"]) == (len(tokens), new), answer["timings"]
        return took

    def close(self):
        pass


def main():
    model, programs = sys.argv[1], sys.argv[2:]
    # A text that repeats nothing: tokens of the vocabulary in a fixed disorder.
    tokens = [1000 + i * 7919 % 20000 for i in range(LONG)]
    all = [Theirs(model)] + [Ours(p, model) for p in programs]
    rates = {a.name: [] for a in all}
    for n in range(ROUNDS + 1):
        for a in all:
            prefill = a.busy(tokens[:PROMPT], 1, f"{n} prefill")
            both = a.busy(tokens[:PROMPT], 1 + NEW, f"{n} both")
            if n > 0:  # the first one loads the file
                rates[a.name].append((PROMPT / prefill, NEW / (both - prefill)))
    theirs = rates["llama.cpp"]
    print(f"{THREADS} threads, prompts of {PROMPT} tokens, {NEW} new ones, {ROUNDS} rounds")
    for name, got in rates.items():
        prefill, decode = (statistics.median(r[i] for r in got) for i in (0, 1))
        x = [statistics.median(a[i] / b[i] for a, b in zip(got, theirs)) for i in (0, 1)]
        print(f"{name:12} prefill {prefill:7.1f} tokens/s, {x[0]:.3f}x   decode {decode:6.1f} tokens/s, {x[1]:.3f}x")
    for a in all[1:]:
        computed, cached = [], []
        for n in range((ROUNDS + 1) // 2):
            computed.append(a.run(tokens, 2, f"long {n}")[0])
            first, _, _, reused = a.run(tokens, 2, f"long {n}")
            assert reused == LONG - 1, reused
            cached.append(first)
        c, r = statistics.median(computed), statistics.median(cached)
        print(f"{a.name:12} first token of {LONG} tokens: computed {c * 1000:.0f} ms, cached {r * 1000:.1f} ms, {c / r:.0f}x sooner")
    for a in all:
        a.close()


main()
