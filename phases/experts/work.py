"""The work of an experts run's tasks: pin models and text, train vectors, score, dispatch, measure.

Tasks of families are added to the folder of text: FOLDER/streams.safetensors gets FAMILY → training
tasks, as the objective `answers` reads them; FOLDER/items.jsonl the tasks of the slices search,
selection and test, as problems. The first two are of the tasks that `task_families` keeps for choosing,
and have none in common.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from typing_extensions import override

from agent_forge.evaluation.answers import EncodedItem, encode, read_items, rows, solved, stream
from agent_forge.evaluation.backends.local_backend import ResidentModel
from agent_forge.evaluation.data import training_texts
from agent_forge.evaluation.data.packing import Ids, ItemPack
from agent_forge.evaluation.task_families import items
from agent_forge.evaluation.task_families.families import Exercise
from agent_forge.evaluation.training_text import kept_text
from agent_forge.evaluation.training_text.kept_text import ITEMS, STREAMS
from agent_forge.events import Event
from agent_forge.phases.experts import figures, recipes, scoring
from agent_forge.phases.experts.figures import SOLVED
from agent_forge.phases.experts.recipes import (
    EXPERT,
    MEASURE,
    SEARCH,
    SVD,
    Adapters,
    Factors,
    Fit,
    Fitted,
    Route,
    Routed,
    Scored,
    Scoring,
    Started,
)
from agent_forge.phases.experts.scoring import (
    Classifier,
    DomainSequences,
    Mixer,
    MixtureScorer,
    joined,
    of_answers,
    of_text,
    sums,
)
from agent_forge.phases.experts.search.generations import spaces
from agent_forge.phases.experts.settings import ExpertsConfig
from agent_forge.runs import keys
from agent_forge.runs.errors import ConfigError, DataError
from agent_forge.runs.event_types import SourceRecord
from agent_forge.runs.home import Home
from agent_forge.runs.kinds.decide import Task
from agent_forge.runs.system.durations import duration, least
from agent_forge.studies import work
from agent_forge.studies.comparison import CHOOSING, TEST
from agent_forge.studies.events import Observe, Observed, answered
from agent_forge.studies.making.making import MakingState
from agent_forge.studies.study_view import Plain
from agent_forge.studies.training_plan import as_float32
from agent_forge.studies.work import Costs, WorkPart
from agent_forge.weights import operations, pieces, svf
from agent_forge.weights.folders.checkpoint import open_checkpoint, publish
from agent_forge.weights.folders.vocabularies import Tokenizer
from agent_forge.weights.storage.inputs import recorded
from agent_forge.weights.storage.weight_cache import Artifacts
from agent_forge.weights.tensors import Tensors, Weights
from agent_forge.weights.training.canary import STEPS
from agent_forge.weights.training.models import low_rank, modules
from agent_forge.weights.training.objectives import reinforce

#: Bytes of a number of a model's factors, in float64.
FACTORED = 16


#: Folder of the vectors in a result, and its files.
BUNDLE, VECTORS, CLASSIFIER = "experts", "experts.safetensors", "classifier.safetensors"
#: Windows of training text that each domain's centroid is made of.
CENTROID = 32


class Context(work.Context):
    """The opened text and models of an experts run, and the work on its tasks."""

    @override
    def write_text(self, folder: Path) -> Sequence[str]:
        notes = super().write_text(folder)
        if self.state.submitted.config.families:
            add(folder, self.state.submitted.config, self.donor)
        return notes

    @property
    def _kept(self) -> tuple[str, ...]:
        """The domains whose experts are of use, in the order of factors."""
        return self.study.run(self.state).known["kept"]

    @property
    @override
    def further(self) -> Mapping[str, Callable[[], Tensors]]:
        records = self.state.started.merges
        return {record.recipe_id: partial(self._merge, place) for place, record in enumerate(records)}

    @cached_property
    @override
    def added(self) -> Sequence[str]:
        submitted = self.state.submitted
        if not submitted.data:
            return ()
        return recipes.added(submitted.config, training_texts.domains(submitted.data))

    def _merge(self, place: int) -> Tensors:
        """Return further model number `place`. Raises SourceChangedError if its weights changed."""
        record = self.state.started.merges[place]
        folder = self._cache.supply.model(self.state.submitted.merges[place], record)
        return self._cache.supply.checked(folder, record)

    @override
    def notes(self, started: Started) -> Sequence[str]:
        same = recipes.alike((started.model, *started.merges))
        return [*same, *recipes.readings(self.state.submitted, started)]

    @override
    def held_out(self, on: str) -> dict[str, ItemPack]:
        if on == SEARCH:
            return self._searched
        if on not in self._packed:
            self._packed[on] = super().held_out(on)
        return self._packed[on]

    @cached_property
    def _packed(self) -> dict[str, dict[str, ItemPack]]:
        """Slice → domain → its packed items, as far as they were read: cutting takes a second."""
        return {}

    @cached_property
    def _searched(self) -> dict[str, ItemPack]:
        """Domain → the windows of the search, drawn by key, with their bytes."""
        config, windows_by_domain = self.state.submitted.config, {}
        for domain, packed in self.text.held_out(self.state.started.context, SEARCH).items():
            count = len(packed.windows)
            order = keys.generator(config.seed, "experts", "windows", domain).permutation(count)
            chosen = sorted(order[: config.windows].tolist())
            windows_by_domain[domain] = ItemPack(
                windows=[packed.windows[i] for i in chosen], bytes=[packed.bytes[i] for i in chosen]
            )
        return windows_by_domain

    def measured(self, on: str) -> dict[str, DomainSequences]:
        """Return domain or family → the sequences of a slice that models are measured on."""
        text = {domain: of_text(packed) for domain, packed in self.held_out(on).items()}
        return text | {family: held for family, (_, held) in self._tasks(on).items()}

    def _tasks(self, on: str) -> dict[str, tuple[list[EncodedItem], DomainSequences]]:
        """Return family → (encoded tasks, sequences) of a slice, read once."""
        if on not in self._read:
            file, names = self.text.folder / ITEMS, self.state.submitted.config.families
            self._read[on] = read(file, names, self.text.tokenizer, on) if names else {}
        return self._read[on]

    @cached_property
    def _read(self) -> dict[str, dict[str, tuple[list[EncodedItem], DomainSequences]]]:
        """Slice → family → (encoded tasks, sequences), as far as they were read."""
        return {}

    # ---- tasks ---------------------------------------------------------------------------------

    @override
    def carry_out(self, task: Task) -> Event:
        if isinstance(task, Scoring):
            return self._scored(task)
        if isinstance(task, Fit):
            return self._fitted(task)
        if isinstance(task, Route):
            return self._routed()
        return super().carry_out(task)

    @cached_property
    def _base(self) -> Tensors:
        """The given model in float32."""
        return Tensors(self.settings, self.weights(as_float32(self.state.started)))

    @cached_property
    def _mixer(self) -> Mixer:
        """The mixer of further models and of the useful experts."""
        base, merges = self._base.weights, self.state.started.merges
        parts = [svf.of_model(base, self._merge(n).weights) for n in range(len(merges))]
        if domains := self._kept:
            factored = self.weights(self.recipes[SVD])
            trained = [self.weights(self.recipes[f"{EXPERT}{domain}"]) for domain in domains]
            parts += [svf.of_vectors(factored, vectors) for vectors in trained]
        return Mixer(self._base, parts, self.device)

    @cached_property
    def _scorer(self) -> MixtureScorer:
        """The scorer of mixtures on the windows of the search."""
        return MixtureScorer(self._mixer, self.measured(SEARCH))

    def _of_experts(self, factors: Factors) -> ResidentModel:
        """Return the module, loaded with the given model and a mixture of experts."""
        return self._mixer.mixed((*(0.0,) * len(self.state.started.merges), *factors))

    def _scored(self, task: Scoring) -> Scored:
        began, search = time.monotonic(), self.study.run(self.state).known["searches"][task.arm]
        bar = search.bar(task.number)
        mixtures = search.bred(task.number).mixtures[task.first : task.last]
        scorer = self._scorer

        def work(number: int) -> pieces.Tensors:
            losses = scorer.scored(mixtures[number], search.given, bar)
            return {name: torch.tensor(nll, dtype=torch.float64) for name, nll in losses.items()}

        with pieces.divided():
            scored = pieces.each(len(mixtures), work)
        items = [{name: tuple(nll.tolist()) for name, nll in losses.items()} for losses in scored]
        return Scored(
            arm=search.arm,
            number=task.number,
            first=task.first,
            items=tuple(items),
            seconds=time.monotonic() - began,
        )

    # ---- dispatch ------------------------------------------------------------------------------

    def _training_windows(self, domain: str, count: int, purpose: str) -> list[Ids]:
        """Return `count` windows of a domain's training text, int64, at places drawn by key."""
        stream, size = self.text.streams[domain], self.state.started.context
        draws = keys.generator(self.state.submitted.config.seed, "experts", purpose, domain)
        places = draws.integers(0, max(1, len(stream) - size), count).tolist()
        return [np.asarray(stream[at : at + size], np.int64) for at in places]

    def _fitted(self, task: Fit) -> Fitted:
        began, config = time.monotonic(), self.state.submitted.config
        windows = self._training_windows(task.domain, config.shots, "shots")
        normal = figures.begin(len(self._kept))
        losses: list[tuple[float, ...]] = []
        for number in range(config.rounds):
            points = figures.points(config, task.domain, number, normal)
            losses.append(self._mean_losses(points, windows))
            normal = figures.follow(config, points, losses[-1])
        return Fitted(
            domain=task.domain,
            losses=tuple(losses),
            factors=normal.mean,
            seconds=time.monotonic() - began,
        )

    def _mean_losses(self, points: Sequence[Factors], windows: Sequence[Ids]) -> tuple[float, ...]:
        """Return the loss of the mixture at each point, nats a token."""

        def work(number: int) -> pieces.Tensors:
            loss = scoring.mean_loss(self._of_experts(points[number]), windows)
            return {"loss": torch.tensor(loss, dtype=torch.float64)}

        with pieces.divided():
            return tuple(float(read["loss"]) for read in pieces.each(len(points), work))

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier of windows by the given model's hidden states at their beginnings."""
        module, length = modules.build(self._base, self.device).eval(), self._prompt
        domains = sorted(set(self.state.submitted.config.domains) & set(self.text.streams))
        rows = {
            domain: scoring.features(
                module, self._training_windows(domain, CENTROID, "centroid"), length
            )
            for domain in domains
        }
        return scoring.fitted(rows)

    @property
    def _prompt(self) -> int:
        return self.state.submitted.config.prompt

    def _routed(self) -> Routed:
        began, domains = time.monotonic(), self._kept
        module = modules.build(self._base, self.device).eval()
        choices: dict[str, tuple[int, ...]] = {}
        items: dict[str, tuple[float, ...]] = {}
        base_losses: dict[str, tuple[float, ...]] = {}
        sizes: dict[str, tuple[int, ...]] = {}
        for domain, packed in sorted(self.held_out(TEST).items()):
            windows = [window for window in packed.windows if len(window) > self._prompt]
            rows = scoring.features(module, windows, self._prompt)
            nearest = self.classifier.nearest(rows)
            choices[domain] = tuple(domains.index(d) + 1 if d in domains else 0 for d in nearest)
            with pieces.divided():
                base_losses[domain] = self._rest(windows, [0] * len(windows))
                items[domain] = self._rest(windows, choices[domain])
            sizes[domain] = tuple(len(window) - self._prompt for window in windows)
        return Routed(
            choices=choices,
            items=items,
            given=base_losses,
            sizes=sizes,
            seconds=time.monotonic() - began,
        )

    def _rest(self, windows: Sequence[Ids], choices: Sequence[int]) -> tuple[float, ...]:
        """Return Σ −log p of each window after its beginning, by the expert of its choice."""
        window_losses, count = [0.0] * len(windows), len(self._kept)
        for choice in sorted(set(choices)):
            places = [place for place, number in enumerate(choices) if number == choice]
            model = self._of_experts(tuple(float(n + 1 == choice) for n in range(count)))
            for place, (losses, _) in zip(
                places, model.losses([windows[place] for place in places]), strict=True
            ):
                rest = losses[self._prompt - 1 :].astype(np.float64)
                window_losses[place] = round(float(rest.sum()), scoring.DIGITS)
        return tuple(window_losses)

    def fill_bundle(self, folder: Path) -> None:
        """Write the experts' vectors, the classifier, and `experts.json` into a folder."""
        state, run, run_classifier = self.state, self.study.run(self.state), self.classifier
        vectors = {
            f"{domain}/{name}": z.contiguous()
            for domain in self._kept
            for name, z in self.weights(run.recipes[f"{EXPERT}{domain}"]).items()
        }
        save_file(vectors, folder / VECTORS)
        pairs = zip(run_classifier.domains, run_classifier.centroids, strict=True)
        centroids = {f"centroid/{domain}": row.clone() for domain, row in pairs}
        save_file({**centroids, "deviation": run_classifier.deviation}, folder / CLASSIFIER)
        origin = {
            "run": state.run,
            "model": state.started.model.digest,
            "decomposition": state.made[run.recipes[SVD].id].digest,
            "parts": list(state.submitted.config.parts),
            "experts": list(self._kept),
            "prompt": self._prompt,
            "factors": {
                domain: list(factors) for domain, factors in run.known.get("factors", {}).items()
            },
        }
        (folder / "experts.json").write_text(json.dumps(origin, indent=2) + "\n", "utf-8")

    # ---- measuring -----------------------------------------------------------------------------

    @override
    def _observed(self, task: Observe) -> Observed:
        began, items, sizes = time.monotonic(), {}, {}
        model = self.loaded(self.model(task.recipe_id), MEASURE)
        if task.measure == SOLVED:
            families = self._tasks(task.on)
            with pieces.divided():
                for family, (tasks, _) in families.items():
                    items[family] = tuple(map(float, solved(model.module, tasks)))
                    sizes[family] = (1,) * len(tasks)
            return answered(task, items, sizes, began)
        domains = sorted(self.measured(task.on).items())
        with pieces.divided():
            for domain, held in domains:
                items[domain], sizes[domain] = tuple(sums(model, held)), tuple(held.bytes)
        return answered(task, items, sizes, began)

    # ---- started -------------------------------------------------------------------------------

    @override
    def pinned(self, common: Plain) -> Started:
        submitted, config = self.state.submitted, self.state.submitted.config
        if config.prompt >= common["context"]:
            raise ConfigError(
                f"prompt is {config.prompt}: a window of {common['context']} tokens must be longer."
            )
        content = self.given().weights
        names = svf.names(content, config.parts)
        numbers = sum(min(content[name].shape) for name in names)
        merges = tuple(self._recorded(place) for place in range(len(submitted.merges)))
        adapters = self._adapters(content, names, numbers) if config.lora else None
        longest = {family: self._longest(family, common["context"]) for family in config.families}
        content = {"merges": merges, "numbers": numbers, "adapters": adapters, "longest": longest}
        return Started(**common, **content, dtype=self.dtype)

    def _longest(self, family: str, context: int) -> int:
        """Return the tokens of a family's longest task and reply. Raises ConfigError if too many."""
        width = reinforce.width(self.text.streams[family])
        if width > context:
            raise ConfigError(
                f"a task of {family} and a reply to it may have {width} tokens, a window has {context}:"
                " set fewer levels, or a longer context if the model takes one."
            )
        return width

    def _adapters(self, weights: Weights, names: Sequence[str], budget: int) -> Adapters:
        """Return adapters of rank 1 with about `budget` numbers on layers of the matrices `names`.

        Raises ConfigError if the model's layers cannot be adapted.
        """
        shapes = {name: (weights[name].shape[0], weights[name].shape[1]) for name in names}
        chosen = low_rank.nearest(shapes, budget)
        try:
            count = low_rank.count(self.settings, 1, chosen)
        except ConfigError as error:
            raise ConfigError(f"{error} Or set lora to false: no adapters beside experts.") from error
        return Adapters(rank=1, modules=chosen, numbers=count)

    def _recorded(self, place: int) -> SourceRecord:
        """Return the record of further model number `place`; put its copy into the shared store."""
        reference = self.state.submitted.merges[place]
        folder = self._cache.supply.model(reference, None)
        opened = open_checkpoint(folder, Path(reference.path))
        recipes.check_alike(reference.name, opened, open_checkpoint(self.donor))
        record = recorded(reference, folder, opened)
        self._cache.supply.share_model(folder)
        return record

    @override
    def check_text(self, started: Started) -> None:
        read = {name: n for name, n in started.tokens.items() if name not in started.longest}
        super().check_text(started.model_copy(update={"tokens": read}))
        if not recipes.trainable(self.state.submitted, started):
            raise DataError(
                "no domain has both training text and items, beside the neutral one: nothing can be "
                "an expert."
            )
        for domain, packed in self.text.held_out(started.context, TEST).items():
            if all(len(window) <= self._prompt for window in packed.windows):
                raise DataError(
                    f"the test text of {domain} has no window of more than {self._prompt} tokens, "
                    "after which the classifier chooses: set a smaller prompt, or give more text."
                )

    @override
    def costs(self) -> Costs:
        """Return the `Costs` of a started run; readings are timed by the windows of a search."""
        submitted, started = self.state.submitted, self.state.started
        config = submitted.config
        domains = recipes.trainable(submitted, started)[: config.experts]
        domains += config.families[: config.experts]
        trainings = [recipes.expert(submitted, started, domain) for domain in domains]
        if started.adapters:
            trainings += [recipes.lora(submitted, started, domain) for domain in domains]
        steps, stepping = sum(training.steps for training in trainings), self.step_seconds()
        trial = min(STEPS, trainings[0].steps)
        arms = len(spaces(len(started.merges), ("",) * len(domains)))
        mixtures = 1 + len(domains) + config.finalists * arms
        first, parameters = self.model(self.record.recipe_id), started.model.parameters
        models = self.study.models_of(submitted, started)
        making = operations.seconds(models, self._input, lambda: self.text.streams).items()
        training = (
            f"{trial} steps of an expert {duration(stepping)}, and there are {steps:,} of all kinds"
        )
        return Costs(
            parts=(
                WorkPart(steps * stepping / trial, training),
                *self._readings(first, len(domains), len(trainings), arms),
                *(WorkPart(s, f"making {name} {duration(s)}, by a part of it") for name, s in making),
            ),
            models=1 + len(trainings) + (0 if started.dtype else mixtures),
            rounded=mixtures + 1,
            numbers=parameters,
            besides="Tasks of families" if config.families else "",
            further=(parameters * FACTORED, " at most, the decomposition"),
            first=first,
        )

    def _readings(self, first: Tensors, experts: int, trainings: int, arms: int) -> list[WorkPart]:
        """Return the time of searches, dispatch and measurements, by a search's windows."""
        config, count = self.state.submitted.config, len(self.state.started.merges) + experts
        slices = {on: joined([*self.measured(on).values()]) for on in (SEARCH, CHOOSING, TEST)}
        mixer = Mixer(first, [first.weights] * count, self.device)
        mixing = least(lambda: mixer.mixed((1.0,) * count))
        reading = least(lambda: sums(mixer.mixed((0.0,) * count), slices[SEARCH]))
        window = reading / len(slices[SEARCH].windows)
        fits = sum(domain in self.state.started.tokens for domain in config.domains)
        tried, searched = fits * config.rounds * config.points, arms * config.evaluations
        choosing = (1 + trainings + config.finalists * arms) * len(slices[CHOOSING].windows)
        read = choosing + (1 + arms + trainings + fits + 2) * len(slices[TEST].windows)
        mixture = f"a mixture {duration(mixing + reading)}, and there are {searched:,} at most"
        shots = f"dispatch reads {config.shots} windows with each of {tried:,} mixtures"
        return [
            WorkPart(searched * (mixing + reading), mixture),
            WorkPart(tried * (mixing + config.shots * window), shots),
            WorkPart(read * window, f"measurements read {read:,} windows of {duration(window)}"),
        ]


def write_bundle(home: Home, state: MakingState, out: str) -> str:
    """Write the result's experts into a folder in `out`; return the path of that folder.

    OUT/experts/experts.safetensors   "DOMAIN/MATRIX": the vectors z of each expert, float32 [rank]
    OUT/experts/classifier.safetensors   domains' centroids and the deviation, float64
    OUT/experts/experts.json          what they are of, and each domain's factors
    """
    context, place = Context.opened(state, Artifacts.of(home)), Path(out) / BUNDLE
    publish(place, context.fill_bundle)
    return str(place)


def add(folder: Path, config: ExpertsConfig, donor: Path) -> None:
    """Add the tasks of all families to the streams and items in a folder of text.

    Raises SourceError if the tokenizer cannot write them, DataError for a level without tasks.
    """
    from safetensors.numpy import load, save_file

    tokenizer = kept_text.given_tokenizer(donor)
    streams, lines = load((folder / STREAMS).read_bytes()), list[str]()
    for family in config.families:
        share = _share(config, config.pool)
        trained = (items(family, level, config.seed, "train", share) for level in _levels(config))
        tasks = [task for level_tasks in trained for task in level_tasks]
        streams[family] = stream(encode(tokenizer, tasks))
        for level in _levels(config):
            lines += [json.dumps(row) for row in _measured(config, tokenizer, family, level)]
    save_file(dict(sorted(streams.items())), folder / STREAMS)
    with (folder / ITEMS).open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))


def _levels(config: ExpertsConfig) -> range:
    return range(1, config.levels + 1)


def _share(config: ExpertsConfig, count: int) -> int:
    """Return one level's part of `count` tasks, rounded up."""
    return -(-count // config.levels)


def _measured(
    config: ExpertsConfig, tokenizer: Tokenizer, family: str, level: int
) -> Iterator[dict[str, object]]:
    """Yield a level's tasks of all slices as rows of an item file. Raises DataError if one has none."""
    windows, count = _share(config, config.windows), _share(config, config.family_items)
    choosing = items(family, level, config.seed, "selection", windows + count)
    searched = min(windows, len(choosing) // 2)
    slices = {
        "search": choosing[:searched],
        "selection": choosing[searched:],
        "test": items(family, level, config.seed, "test", count),
    }
    for on, tasks in slices.items():
        if not tasks:
            raise DataError(f"family {family} has too few tasks of level {level} for the slice {on}.")
        yield from rows(tokenizer, tasks, family, level, on)


def read(
    file: Path, families: Sequence[str], tokenizer: Tokenizer, on: str
) -> dict[str, tuple[list[EncodedItem], DomainSequences]]:
    """Return family → (encoded tasks of a slice, the same as sequences to predict)."""
    items_by_family: dict[str, list[Exercise]] = {family: [] for family in families}
    for item in read_items(file, on, families):
        items_by_family[item.family].append(item)
    tasks_by_family = {}
    for family, entry in items_by_family.items():
        ids = encode(tokenizer, entry)
        tasks_by_family[family] = ids, of_answers(ids, [item.answer for item in entry])
    return tasks_by_family
