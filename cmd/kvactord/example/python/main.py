"""A client of the daemon in Python, with the package in python/: it stores what it has
"computed" of a prompt, and finds it again. Run it twice with the path of the socket.
"""

import sys

import kvactor

session = kvactor.connect(sys.argv[1]).open(
    "example in Python",
    "my-weights, float16",
    [kvactor.Group("all layers", 16, (4096, 4096))],
    max_tokens=4096,
)
memory = session.memory().pages(0, 0)  # of the first layer: (pages, bytes)
tokens = list(range(1000, 1069))

# What is stored: its pages may be read until the release.
found = session.match(kvactor.Prompt(tokens))
print(found.tokens, "of", len(tokens), "tokens are stored")
for i in range(found.tokens // 16):
    print("block", i, "begins with", memory[found.pages[0][i], 0])
session.release(found.handle)

# Pages for the whole blocks that are not: write them, then say so.
write = session.reserve(kvactor.Reserve(kvactor.Prompt(tokens[:64])))
if write.handle:
    for i, page in enumerate(write.pages[0]):
        if page != kvactor.NO_PAGE:
            memory[page, 0] = i + 1  # the keys and values of block i
    session.written(write.handle, 64)
    session.release(write.handle)
    session.drain()
session.close()
