"""The text that the built-in model is trained on: chats, drawn at random from
sentences of our own. Nothing here comes from anywhere else.

A chat is a list of (role, text). Most of what is asked can only be answered from
what was said before in the same chat, so the model has to look back: a name, a
pet, a fact of the system prompt. The rest is a fixed stock of questions.
"""

NAMES = """Anna Ben Clara David Emma Felix Grace Hugo Iris Jonas Karin Leo Maria Nils Olga Paul
Rosa Simon Tara Victor Wanda Yusuf Zoe Alice Bruno Dora Erik Fatima Gina Henry Ida Jack""".split()
PETS = ["cat", "dog", "horse", "parrot", "rabbit", "hamster", "turtle", "goat"]
PET_NAMES = "Rex Bella Max Luna Oscar Daisy Rocky Molly Toby Ruby Buddy Coco Jasper Pepper Sunny Tiger".split()
CITIES = """Oslo Rome Paris Berlin Madrid London Vienna Lisbon Dublin Athens Warsaw Prague Tokyo Cairo
Lima Delhi""".split()
COLOURS = "red blue green yellow black white brown orange pink grey purple silver".split()
FOODS = "bread soup rice cake fish cheese pizza salad pasta apples honey beans".split()
JOBS = "teacher doctor baker farmer pilot singer nurse painter cook driver lawyer writer".split()

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Germany": "Berlin", "Spain": "Madrid", "England": "London",
    "Austria": "Vienna", "Portugal": "Lisbon", "Ireland": "Dublin", "Greece": "Athens", "Poland": "Warsaw",
    "Norway": "Oslo", "Japan": "Tokyo", "Egypt": "Cairo", "Peru": "Lima", "India": "Delhi",
}
OPPOSITES = {
    "hot": "cold", "big": "small", "old": "new", "fast": "slow", "up": "down", "day": "night", "good": "bad",
    "open": "closed", "light": "dark", "long": "short", "full": "empty", "early": "late", "left": "right",
}
SOUNDS = {"cat": "meow", "dog": "woof", "cow": "moo", "duck": "quack", "sheep": "baa", "lion": "roar", "bee": "buzz"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()

# Questions about the program that the model is part of.
ABOUT = [
    (["What is kvactor?", "Tell me about kvactor.", "What does kvactor do?"],
     "kvactor is a KV cache engine for language models, written in Go. It decides which page holds the keys and values of which tokens."),
    (["What is a KV cache?", "Explain the KV cache.", "What does a KV cache do?"],
     "A KV cache keeps the keys and values of tokens that were computed before, so that they need not be computed again."),
    (["What is a page?", "Explain a page.", "What is a page of the cache?"],
     "A page is the memory of one block of tokens in one pool."),
    (["What is a block?", "Explain a block."], "A block is a fixed number of tokens of a prefix, one after the other."),
    (["What is a pool?", "Explain a pool."],
     "A pool has the pages of the layers that share a window and a number of KV heads."),
    (["What is a radix tree?", "Why is there a radix tree?"],
     "A radix tree stores the prefixes that are cached. It finds the longest one that a new prompt begins with."),
    (["Why is the second answer sooner?", "Why was the second answer faster?", "Why are you faster now?"],
     "The second prompt begins with the first one. Its keys and values are in the cache, so only the new tokens are computed."),
    (["What is offloading?", "What does offload mean?"],
     "To offload is to copy a page from the device to host memory. To onboard is to copy it back."),
    (["What is a window?", "What is a sliding window?"],
     "With a sliding window of attention a token sees only the last tokens, so older pages can be dropped."),
    (["What is prefill?", "Explain prefill."], "Prefill computes the keys and values of a prompt, before the first token is generated."),
    (["What is decoding?", "What is a decode step?"], "A decode step computes one more token of every running sequence."),
    (["What is a token?", "Explain a token."], "A token is a piece of text. A model reads and writes tokens, not letters."),
    (["What is attention?", "Explain attention."],
     "Attention lets a token look back at the keys and values of the tokens before it."),
    (["What is an eviction?", "What does evict mean?"],
     "To evict is to take a page away from what it caches, because something else needs the page."),
    (["Who are you?", "What are you?", "Are you a person?", "Tell me about yourself."],
     "I am a tiny language model that comes with kvactor. I know little, but I can look back at what you told me."),
    (["What can you do?", "Help me.", "What do you know?", "Help"],
     "I can remember what you tell me in this chat, add small numbers, and answer some questions about kvactor."),
    (["How big are you?", "How many parameters do you have?"], "I am tiny: I have half a million parameters and four layers."),
    (["How are you?", "How are you today?"], "I am fine, thank you."),
    (["Thank you.", "Thanks!", "Thanks a lot.", "Thank you very much."], "You are welcome."),
    (["Goodbye.", "Bye!", "See you."], "Goodbye!"),
    (["Hello.", "Hi!", "Hello!", "Hi", "Hello", "Good morning.", "Hey"], "Hello! How can I help you?"),
    (["Is this fast?", "Are you fast?"], "I am small, so I am fast even in plain Go."),
    (["What time is it?", "What is the weather like?", "Who is the president?", "Tell me the news."], "I do not know that."),
    (["Tell me a joke.", "Say something funny."], "Why did the token look back? It wanted some attention."),
]


class Facts:
    """What one person told about themselves: each kind of fact at most once."""

    def __init__(self, rng):
        self.rng, self.known = rng, {}

    def tell(self):
        """A sentence of the user with a new fact, and the answer."""
        rng = self.rng
        kind = rng.choice(["name", "pet", "city", "colour", "food", "job"])
        if kind == "name":
            v = rng.choice(NAMES)
            self.known = {"name": (v, None)} | {k: x for k, x in self.known.items() if k != "name"}
            return rng.choice(["My name is {}.", "I am {}.", "Hi, I am {}.", "Hello, my name is {}.", "I am called {}."]).format(v), rng.choice(["Hello {}!"]).format(v)
        if kind == "pet":
            p, v = rng.choice(PETS), rng.choice(PET_NAMES)
            self.known["pet " + p] = (v, p)
            return rng.choice(["My {} is called {}.", "I have a {} called {}.", "The name of my {} is {}."]).format(p, v), f"{v} is a nice name for a {p}."
        v = rng.choice({"city": CITIES, "colour": COLOURS, "food": FOODS, "job": JOBS}[kind])
        self.known[kind] = (v, None)
        said = {
            "city": ["I live in {}.", "My home is in {}."],
            "colour": ["My favourite colour is {}.", "I like the colour {}."],
            "food": ["I like to eat {}.", "My favourite food is {}."],
            "job": ["I am a {}.", "I work as a {}."],
        }[kind]
        answer = {
            "city": "{} is a fine city.", "colour": "{} is a nice colour.", "food": "I have heard that {} is good.",
            "job": "It must be interesting to be a {}.",
        }[kind].format(v)
        return rng.choice(said).format(v), answer[0].upper() + answer[1:]

    def ask(self):
        """A question about a fact, and the answer."""
        rng = self.rng
        kind = rng.choice(list(self.known) + ["name", "city", "colour"])
        if kind not in self.known:
            return {
                "name": (rng.choice(["What is my name?", "Who am I?", "Do you know my name?"]), "You have not told me your name."),
                "city": (rng.choice(["Where do I live?", "Which city do I live in?"]), "You have not told me where you live."),
                "colour": (rng.choice(["What is my favourite colour?", "Which colour do I like?"]), "You have not told me your favourite colour."),
            }[kind]
        v, of = self.known[kind]
        if of:
            return rng.choice([f"What is my {of} called?", f"What is the name of my {of}?", f"Do you know my {of}'s name?"]), f"Your {of} is called {v}."
        return {
            "name": (rng.choice(["What is my name?", "Who am I?", "Do you know my name?"]), f"Your name is {v}."),
            "city": (rng.choice(["Where do I live?", "Which city do I live in?"]), f"You live in {v}."),
            "colour": (rng.choice(["What is my favourite colour?", "Which colour do I like?"]), f"Your favourite colour is {v}."),
            "food": (rng.choice(["What do I like to eat?", "What is my favourite food?"]), f"You like to eat {v}."),
            "job": (rng.choice(["What is my job?", "What do I work as?"]), f"You are a {v}."),
        }[kind]


def stock(rng):
    """A question whose answer does not depend on the chat."""
    n = rng.randrange(9)
    if n < 4:
        asked, answer = ABOUT[rng.randrange(len(ABOUT))]
        return rng.choice(asked), answer
    if n == 4:
        c = rng.choice(list(CAPITALS))
        return rng.choice([f"What is the capital of {c}?", f"Name the capital of {c}."]), f"The capital of {c} is {CAPITALS[c]}."
    if n == 5:
        w = rng.choice(list(OPPOSITES))
        return f"What is the opposite of {w}?", f"The opposite of {w} is {OPPOSITES[w]}."
    if n == 6:
        w = rng.choice(list(SOUNDS))
        return rng.choice([f"What does a {w} say?", f"Which sound does a {w} make?"]), f"A {w} says {SOUNDS[w]}."
    if n == 7:
        i = int(rng.randrange(7))
        if rng.randrange(2):
            return f"Which day comes after {DAYS[i]}?", f"After {DAYS[i]} comes {DAYS[(i + 1) % 7]}."
        return f"Which day comes before {DAYS[i]}?", f"Before {DAYS[i]} comes {DAYS[i - 1]}."
    a, b = rng.randrange(10), rng.randrange(10)
    return rng.choice([f"What is {a} plus {b}?", f"How much is {a} + {b}?"]), f"{a} plus {b} is {a + b}."


def system(rng, people):
    """A system prompt with facts about people, and questions about them."""
    lines, questions = ["You answer questions about these people."], []
    for p in rng.sample(NAMES, people):
        city, job, pet, name = rng.choice(CITIES), rng.choice(JOBS), rng.choice(PETS), rng.choice(PET_NAMES)
        lines.append(f"{p} is a {job} and lives in {city}. The {pet} of {p} is called {name}.")
        questions += [
            (f"Where does {p} live?", f"{p} lives in {city}."),
            (rng.choice([f"What is the job of {p}?", f"What does {p} do?"]), f"{p} is a {job}."),
            (f"What is the {pet} of {p} called?", f"The {pet} of {p} is called {name}."),
            (f"Which animal does {p} have?", f"{p} has a {pet}."),
        ]
    return " ".join(lines), questions


def chat(rng):
    """A chat of a few turns, as a list of (role, text)."""
    out, questions = [], None
    if rng.randrange(3) == 0:
        text, questions = system(rng, 1 + rng.randrange(6))
        out.append(("system", text))
    facts = Facts(rng)
    for _ in range(2 + rng.randrange(6)):
        n = rng.randrange(10)
        if questions and n < 7:
            turn = questions[rng.randrange(len(questions))]
        elif n < 3:
            turn = facts.tell()
        elif n < 7:
            turn = facts.ask() if facts.known else facts.tell()
        else:
            turn = stock(rng)
        out += [("user", str(turn[0])), ("assistant", str(turn[1]))]
    return out
