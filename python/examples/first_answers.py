# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # First answers
#
# Cells of a notebook: editors and Jupytext open this file as one, and `python3` runs it, in the top folder. A line `# > ...` is what
# the cell above it prints, which a test compares.

# %% A model's folder
import pagefuse

model = pagefuse.load("models/gemma3_recall", kv_cache="fp8_per_token_head", threads=2)
print(model)
# > pagefuse.Model("models/gemma3_recall": paged, 256 tokens)

# %% A text
facts = "The red box holds 12 pins. The tin cup holds 45 keys."
answer = model.generate(facts + "\nWhat does the red box hold? ", max_new_tokens=16)
print(answer.text.strip(), answer.finish, len(answer.tokens))
# > 12 pins. stop 9

# %% Piece by piece
for text in model.stream(facts + "\nWhat does the tin cup hold? "):
    print(text, end="", flush=True)
# > 45 keys.

# %% A conversation
chat = model.chat(system=facts)
print(chat.ask("What does the tin cup hold?").text.strip())
for text in chat.stream("What does the red box hold?"):
    print(text, end="", flush=True)
# > 45 keys.
# > 12 pins.

# %% What was said
chat.undo()
for message in chat.messages:
    print(f"{message['role']}: {message['content'].strip()}")
# > system: The red box holds 12 pins. The tin cup holds 45 keys.
# > user: What does the tin cup hold?
# > assistant: 45 keys.

# %% Messages of one's own
messages = [{"role": "user", "content": facts + "\nWhat does the red box hold?"}]
print(model.generate(messages).text.strip())
# > 12 pins.

# %% Several prompts in one batch
questions = [f"{facts}\nWhat does the {thing} hold? " for thing in ("red box", "tin cup")]
for answer in model.generate(questions):
    print(answer.text.strip())
# > 12 pins.
# > 45 keys.

# %% Samples, drawn with a seed
drawn = model.generate(questions[0], samples=3, temperature=0.5, top_p=0.9, seed=7)
again = model.generate(questions[0], samples=3, temperature=0.5, top_p=0.9, seed=7)
print(len(drawn), [a.text for a in drawn] == [a.text for a in again])
# > 3 True

# %% Stops, and the end tokens of the model
print(model.generate(questions[0], stop=" pins").text)
print(model.engine.end_tokens)
# > 12
# > [3, 10]

# %% Progress
stages = []
model.generate(questions[0], progress=lambda stage, done, total: stages.append((stage, done, total)))
print(stages[0], stages[-1])
# > ('prompt', 83, 83) ('answer', 9, 32)

# %% Token ids
ids = model.encode(questions[1])
print(ids[:6], ids.dtype)
print(model.tokenizer.decode(model.generate(ids).tokens).strip())
# > [  2  84 104 101  32 114] int64
# > 45 keys.
