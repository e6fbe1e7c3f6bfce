"""The fixed prompts of probes.

Each asks for a long, certain answer (a list in order, a retelling), so that greedy decoding has little to decide.
The text before the question is there to be prefilled: it is made longer than the router's decider asks for.
A token is at least a word for tokenizers that never join words, which the common ones do not; so words are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from policy.chance import SplitMix64

# Changing a passage, a question or their order makes golden outputs useless, so it makes another version.
PROMPT_SET = "1"

PASSAGES = (
    "The harbour of the small town faces north, so boats that come in after noon have the wind against them. Every "
    "skipper knows the two white stones on the hill: when the one stands over the other, the water is deep enough.",
    "A baker starts the first dough at two in the morning. It rests for four hours, is folded twice, and goes into "
    "the oven when the street lamps go out. The second dough is smaller and has rye in it, for the people of the mill.",
    "The library lends tools as well as books. A drill may be kept for three days, a ladder for one, and whoever "
    "brings back a saw that is blunt is shown how to sharpen it before the next loan is written down.",
    "Seven bridges cross the river between the lake and the sea. The oldest is of wood and carries only people on "
    "foot; the youngest is of steel and opens for ships on Tuesdays, when the market is closed.",
    "The clock in the tower has no second hand. It is wound by a keeper who climbs one hundred and twelve steps, and "
    "who says that the clock is never wrong, only the people who look at it too early.",
    "On the farm below the ridge there are forty sheep, three dogs and a donkey that believes it is a dog. In spring "
    "the sheep go up to the high meadow by the path behind the chapel, and in autumn they come down by the road.",
    "The telephone exchange of the valley was closed when the last operator retired. Her plugs and cords are kept in "
    "the school, where children learn how a call once passed through the hands of a person who knew every name.",
    "Rain falls on the western slope in every month of the year, on the eastern slope only in four. The farmers of "
    "the east built a channel nine miles long, so narrow that a cat can jump over it, and have shared it ever since.",
    "The train to the coast has six carriages. The first is for bicycles, the second for people who want to be quiet, "
    "and in the last one a woman sells soup from a pot that she ties to the seat with a belt.",
    "In the workshop of the instrument maker no clock is allowed. Glue dries when it is dry, he says, and a board "
    "that was cut in winter will tell you in summer whether you were patient enough.",
    "The island has two post offices and one road. Letters from the north office to the south office travel over the "
    "mainland, because the mail boat starts in the north and the islanders like the boat.",
    "A gardener planted four trees for four children: an apple, a pear, a plum and a walnut. The walnut bore nothing "
    "for eleven years. In the twelfth it gave so many nuts that the youngest child paid for her first bicycle.",
    "The map of the old mine shows three levels. Water stands in the lowest, bats sleep in the middle, and the upper "
    "one is open to visitors, who are counted when they go in and counted again when they come out.",
    "Every tenth winter the lake freezes so hard that a road is marked across it with small fir trees. Cars may drive "
    "thirty yards apart, with open windows, and nobody may stop to take a picture.",
    "The night watchman of the museum knows the paintings by their cracks. When a visitor asks which one he likes "
    "best he points to the smallest, a view of a kitchen, because the light in it comes from the left, as in his own.",
    "Two brothers kept a ferry. The elder spoke with everybody, the younger with nobody, and people who had to think "
    "waited for the younger. When a bridge was built they moved the ferry upstream and went on.",
    "The weather station on the pass sends a report every six hours: wind, cloud, snow, and the number of ravens on "
    "the roof. Nobody asked for the ravens, but the series is now forty years long and a student writes about it.",
    "The choir sings in a barn because the church is too cold. The farmer moves his tractor out on Thursdays; the "
    "owl stays, and the basses claim that it joins in when the last chord is a fifth.",
    "A map seller at the station corrects his maps by hand. When a street gets a new name he crosses the old one out "
    "with a thin red line, so that people who knew it before can still find their way.",
    "The lighthouse lamp was once turned by a weight that sank forty feet in a night. Today a motor turns it, but "
    "the weight hangs in its shaft, oiled, and twice a year the keeper lets it do the work.",
    "In the school kitchen the cook writes the menu in the order in which things must be eaten: first what spoils, "
    "then what keeps, and on Fridays a soup in which the whole week can be read backwards.",
    "The quarry gave the stone for the town hall, the theatre and the long wall along the river. When it was empty it "
    "filled with water so clear that swimmers see the marks of the chisels thirty feet below.",
    "The signal box at the junction has twenty-four levers. Those painted red stop trains, those painted blue lock "
    "the others, and one is painted white and does nothing since the branch line was taken up.",
    "Beekeepers of the heath move their hives by night, with wet sacks over the doors. They drive slowly, with the "
    "windows down, and say that a lorry full of bees sounds like a choir that has forgotten the words.",
)

QUESTIONS = (
    "List the whole numbers from one to sixty in words, separated by commas.",
    "Write the months of the year in order, each with its number of days, and then the same backwards.",
    "Write the multiplication table of seven from one times seven to twenty times seven, one line for each.",
    "Repeat the first sentence of the text above word for word, three times.",
    "List the letters of the English alphabet, each with a common word that starts with it.",
    "Count down from fifty to one in digits, separated by spaces.",
    "Write the days of the week in order four times, numbered from one to twenty-eight.",
    "List the first thirty even numbers, separated by commas, and then the first thirty odd numbers.",
    "Copy the last two sentences of the text above exactly, and then copy them once more.",
    "Write the squares of the numbers from one to twenty-five, each as an equation.",
    "List the planets of the solar system from the sun outwards, each with one short sentence about it.",
    "Write the numbers from one hundred to one hundred and forty in digits, separated by commas.",
    "Spell the words winter, summer, spring and autumn letter by letter, with hyphens, each three times.",
    "Write the powers of two from two to the power of zero to two to the power of twenty.",
    "List the colours of the rainbow in order, then in reverse order, then in alphabetical order.",
    "Write the multiplication table of nine from one times nine to twenty times nine, one line for each.",
    "Copy the text above from its beginning until it ends.",
    "List the numbers from three to ninety-nine that can be divided by three, separated by commas.",
    "Write the hours of a day from midnight on, in the form 00:00, one after the other, for two days.",
    "List the chemical elements from hydrogen to calcium by number, symbol and name.",
    "Count from one to forty in Roman numerals, separated by commas.",
    "Write the numbers from one to thirty as ordinal words: first, second, third, and so on.",
    "Write the cubes of the numbers from one to twenty, each as an equation.",
    "List the first twenty-five prime numbers, each on a line with its place in the list.",
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `least_tokens` is how many tokens it has at least, without a salt."""

    id: str
    text: str
    least_tokens: int


def fixed_prompts(*, longer_than: int = 0) -> tuple[Prompt, ...]:
    """All prompts, each of more than `longer_than` tokens: the router's decider threshold.

    The same threshold always gives the same texts. Raises ValueError below 0.
    """
    if longer_than < 0:
        raise ValueError(f"a threshold of {longer_than} tokens")
    return tuple(_prompt(number, question, longer_than) for number, question in enumerate(QUESTIONS))


def salt_prompt(prompt: Prompt, salt: str) -> str:
    """The text to send. The salt stands in front, so that no block of an earlier request has the same prefix.

    For parity the reference gets the same text, and must not find the blocks that the path under test left on its
    decode group: send it with another `cache_salt` (vLLM), or to another group.
    """
    return f"Request {salt}.\n\n{prompt.text}"


def fresh_salts(*, seed: int) -> Iterator[str]:
    """Salts of 16 hexadecimal digits, without end, each once."""
    stream = SplitMix64(seed)
    while True:  # the generator's numbers do not repeat within 2**64
        yield f"{stream.next():016x}"


def _prompt(number: int, question: str, longer_than: int) -> Prompt:
    """Passages from this prompt's own on, around the circle, until the words are enough; then the question."""
    passages = [PASSAGES[number]]
    words = len(question.split()) + len(passages[0].split())
    while words <= longer_than:
        passages.append(PASSAGES[(number + len(passages)) % len(PASSAGES)])
        words += len(passages[-1].split())
    return Prompt(f"p{number + 1:02}", "\n\n".join([*passages, question]), words)
