"""Settings of the search: one model a strategy, so that a strategy has only settings that it reads.

`EvoMergeConfig.search` holds one of them, chosen by its `strategy`. A package that registers a
strategy names its model in `Strategy.settings`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    SerializeAsAny,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
    model_validator,
)
from typing_extensions import override

from agent_forge.evomerge.recipes.recipe import PIPELINES, SPECIES
from agent_forge.runs.errors import StrategyError

#: Group of entry points with which other packages register strategies.
ENTRY_POINTS = "evomerge.strategies"
#: Objectives of nsga2, beside domain/NAME.
OBJECTIVES = ("perplexity", "accuracy", "speed", "memory")
#: The two objectives of a front if the strategy has no setting for them.
USUAL_OBJECTIVES = ("perplexity", "accuracy")


class SearchSettings(BaseModel):
    """Settings that every strategy has; base class of each strategy's model."""

    # The string under a setting is its description in the schema.
    # Forms, `forge settings` and docs/settings.md show the description.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    strategy: str
    """Search strategy: auto, elite-loser, tournament, cma-es, nsga2, or one that a package
    registers; see docs/search.md. Default auto; elite-loser if a setting is given that elite-loser
    has and auto lacks."""
    population_size: int = Field(default=8, ge=1, le=512)
    """Candidates of a generation."""

    @property
    def kept(self) -> int:
        """The number of best candidates that go to the selection slice and stay in the cache."""
        return 2

    @property
    def front_objectives(self) -> tuple[str, ...]:
        """The objectives of the Pareto front that reports show."""
        return USUAL_OBJECTIVES

    @property
    def repeats(self) -> int:
        """Number of places of a block in a path through the layers; 0: no paths."""
        return 0

    def longest_path(self, blocks: int) -> int:
        """Return the most blocks that a candidate may have if its models have `blocks` blocks."""
        return blocks


class EliteSettings(SearchSettings):
    """Settings of strategies that have an elite."""

    elite_size: int = Field(default=2, ge=1)
    """Size of the elite: the best candidates of a generation, of which the champion is chosen."""

    @property
    @override
    def kept(self) -> int:
        """The size of the elite."""
        return self.elite_size


class MutationSettings(SearchSettings):
    """Settings of strategies that mutate candidates."""

    mutation: Literal["weights", "genes", "both"] = "both"
    """Target of a mutation: the mutant's weights, the genes of its recipe, or both."""
    mutation_rate: float = Field(default=0.01, gt=0, le=1)
    """Share of elements that a mutant's weight noise touches."""
    mutation_sigma: float = Field(default=0.2, gt=0)
    """Norm of a mutant's weight noise relative to the tensor's task vector; with
    mutation_relative_to absolute, its standard deviation."""
    mutation_relative_to: Literal["task_vector", "absolute"] = "task_vector"
    """Unit of mutation_sigma; task_vector: the norm of the tensor's task vector; absolute: none."""
    gene_sigma: float = Field(default=0.25, gt=0)
    """Step of a mutant's genes; the scale and density of a pipeline move by this standard deviation
    of their logarithms, other genes in proportion."""
    adaptive_mutation: bool = False
    """Let steps grow if more than a fifth of the mutants are better than their parents, and shrink
    if fewer are."""
    technique_selection: Literal["uniform", "earned"] = "uniform"
    """Choice of the techniques of new candidates; uniform: all alike; earned: more often those
    whose candidates were in the better half."""


class GenomeSettings(SearchSettings):
    """Settings of strategies that search the continuous genome."""

    species: tuple[str, ...] = ("task_arithmetic", "ties")
    """Merge techniques of candidates; also dare_linear, dare_ties, slerp, tsv_m, iso_c and the four
    pipelines that end in dfs. cma-es and nsga2 use the first."""
    layer_groups: int = Field(default=4, ge=1, le=64)
    """Groups that the layers are cut into, if genome_detail is layers or full."""
    genome_detail: Literal["whole", "layers", "parts", "full"] = "layers"
    """Cells that have genes of their own; whole: all tensors; layers: every layer group; parts:
    attention, mlp, rest, embedding and head; full: all of these in every layer group. auto goes
    from whole by layers to full."""

    @field_validator("species", mode="after")
    @classmethod
    def _known_species(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _some(value, SPECIES, set(value) - set(SPECIES))

    def depths(self, blocks: int) -> int:
        """Return the number of layer groups: `layer_groups`, or `blocks` if that is smaller."""
        return min(self.layer_groups, blocks)


class PathSettings(GenomeSettings):
    """Settings of strategies that can search paths through the layers as well."""

    path_repeats: int = Field(default=0, ge=0, le=4)
    """Places of a block in a path through the layers, to 4; 0: no paths."""
    path_blocks: int | None = Field(default=None, ge=1)
    """Most blocks of a path, no fewer than the models have; unset: half as many more. Only with
    path_repeats."""

    @model_validator(mode="after")
    def _blocks_of_a_path(self) -> PathSettings:
        if self.path_blocks is not None and not self.path_repeats:
            raise ValueError("setting path_blocks limits paths: set path_repeats too")
        return self

    @property
    @override
    def repeats(self) -> int:
        return self.path_repeats

    @override
    def longest_path(self, blocks: int) -> int:
        if not self.path_repeats:
            return blocks
        return self.path_blocks or blocks + blocks // 2


class AutoSearch(GenomeSettings):
    """A bandit over species, each with a CMA-ES distribution of its own."""

    strategy: Literal["auto"] = "auto"


class EliteLoserSearch(MutationSettings, EliteSettings):
    """Search by elites and losers: elites are mutated, losers are merged in threes.

    elite_size × mutants_per_elite + (population_size − elite_size) / 3 must be population_size:
    8 = 2 × 3 + 6 / 3, 4 = 1 × 3 + 3 / 3.
    """

    strategy: Literal["elite-loser"] = "elite-loser"
    mutants_per_elite: int = Field(default=3, ge=1)
    """Mutants of each elite."""
    keep_elites: bool = False
    """Let elites stay and compete with their children, μ + λ."""
    techniques: tuple[str, ...] = ("linear", "slerp", "dare", "ties", "frankenmerge", "dfs")
    """Techniques of the allowed pipelines: each stage needs at least one of its two techniques."""
    dare_drop: float = Field(default=0.5, ge=0, lt=1)
    """Share of a task vector that dare drops in the first pipelines; a gene from then on."""
    ties_density: float = Field(default=0.2, gt=0, le=1)
    """Share of a task vector that ties keeps in the first pipelines; a gene from then on."""

    @model_validator(mode="after")
    def _adds_up(self) -> EliteLoserSearch:
        losers = self.population_size - self.elite_size
        children, rest = divmod(losers, 3)
        mutants = self.elite_size * self.mutants_per_elite
        if losers < 0 or rest or mutants + children != self.population_size:
            raise ValueError(
                f"the population does not add up: {self.elite_size} elites give "
                f"{self.elite_size} x {self.mutants_per_elite} = {mutants} mutants, "
                f"{self.population_size} - {self.elite_size} = {losers} losers give "
                f"{losers} / 3 = {losers / 3:.4g} merges, together {mutants + losers / 3:.4g}, "
                f"not {self.population_size}. 8 = 2 x 3 + 6 / 3 and 4 = 1 x 3 + 3 / 3 add up"
            )
        if not self.pipelines:
            raise ValueError(
                "techniques must keep one of linear|slerp, one of dare|ties and one of "
                f"frankenmerge|dfs, and no other; they are {', '.join(self.techniques)}"
            )
        return self

    @property
    def pipelines(self) -> tuple[int, ...]:
        """The numbers of the pipelines that `techniques` allow."""
        if not set(self.techniques) <= {stage for names in PIPELINES for stage in names}:
            return ()
        return tuple(n for n, names in enumerate(PIPELINES) if set(names) <= set(self.techniques))


class TournamentSearch(PathSettings, MutationSettings, EliteSettings):
    """A genetic algorithm: tournaments, crossover and mutation; the elite stays."""

    strategy: Literal["tournament"] = "tournament"
    tournament_size: int = Field(default=3, ge=1)
    """Candidates drawn for each parent."""
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    """Share of children with two parents."""
    niching: Literal["none", "attraction", "sharing", "both"] = "none"
    """Choice of parents by items; attraction: the second is the parent that does best where the
    first does badly; sharing: the first wins by what few others reach; both."""


class CmaEsSearch(PathSettings):
    """One CMA-ES distribution over the genome of the first species."""

    strategy: Literal["cma-es"] = "cma-es"
    search_sigma: float = Field(default=0.1, gt=0, le=0.5)
    """Standard deviation of the first generation, of a gene's whole range."""


class Nsga2Search(PathSettings):
    """Several objectives and a Pareto front, on the genome of the first species."""

    strategy: Literal["nsga2"] = "nsga2"
    objectives: tuple[str, ...] = USUAL_OBJECTIVES
    """Objectives of the Pareto front; also speed, memory, domain/NAME."""

    @field_validator("objectives", mode="after")
    @classmethod
    def _known_objectives(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        strange = {name for name in value if not name.startswith("domain/")} - set(OBJECTIVES)
        return _some(value, OBJECTIVES, strange)

    @property
    @override
    def front_objectives(self) -> tuple[str, ...]:
        """The objectives that are searched."""
        return self.objectives


class OtherSearch(SearchSettings):
    """Settings of a strategy that is not installed here, as they were recorded.

    A log stays readable without the package that its strategy is from. `search.current` refuses
    these settings for a new run.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, JsonValue]


def _some(value: tuple[str, ...], names: tuple[str, ...], strange: set[str]) -> tuple[str, ...]:
    if strange or not value or len(set(value)) < len(value):
        raise ValueError(f"give some of {', '.join(names)}, each once; it is {', '.join(value)}")
    return value


#: Strategy of this program → its model; the first is for users who choose none.
MODELS: dict[str, type[SearchSettings]] = {
    "auto": AutoSearch,
    "elite-loser": EliteLoserSearch,
    "tournament": TournamentSearch,
    "cma-es": CmaEsSearch,
    "nsga2": Nsga2Search,
}


def having(name: str) -> list[str]:
    """Return the names of this program's strategies that have the setting `name`."""
    return [strategy for strategy, model in MODELS.items() if name in model.model_fields]


#: Names of the settings of all strategies of this program; none is also a setting of every run.
NAMES = frozenset(name for model in MODELS.values() for name in model.model_fields)


def implied(names: set[str]) -> str:
    """Return "elite-loser" if one of these settings is its own and not auto's, else "auto"."""
    elite_loser = names & EliteLoserSearch.model_fields.keys() - AutoSearch.model_fields.keys()
    return "elite-loser" if elite_loser else "auto"


@cache
def plugins() -> dict[str, object]:
    """Return {name: class} of what other packages register as strategies. Raises StrategyError."""
    classes = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            classes[point.name] = point.load()
        except Exception as error:
            raise StrategyError(f"strategy {point.name} cannot be loaded: {error}") from error
    return classes


@cache
def named(model: type[SearchSettings], strategy: str) -> type[SearchSettings]:
    """Return a subclass of `model`, a registered strategy's, that accepts that strategy's name only."""
    field: Any = (Literal[strategy], strategy)  # pyright: ignore[reportInvalidTypeForm]
    return create_model(f"{model.__name__}Of{strategy}", __base__=model, strategy=field)


def model_of(strategy: object) -> type[SearchSettings]:
    """Return the model class of a strategy's settings; OtherSearch if it is not installed here."""
    if not isinstance(strategy, str):
        return OtherSearch
    if strategy in MODELS:
        return MODELS[strategy]
    try:
        model = getattr(plugins().get(strategy), "settings", None)
    except StrategyError:
        return OtherSearch
    suits = isinstance(model, type) and issubclass(model, SearchSettings)
    return named(model, strategy) if suits else OtherSearch


def _tag(value: object) -> str:
    """Return the tag, in `AnySearch`, of given settings; without a strategy the implied one."""
    if isinstance(value, dict):
        name = value["strategy"] if "strategy" in value else implied(set(value))
    else:
        name = getattr(value, "strategy", None)
    return name if isinstance(name, str) and name in MODELS else "other"


def _registered(value: object, handler: ValidatorFunctionWrapHandler) -> SearchSettings:
    """Return the settings as a registered strategy's model; if that refuses, as recorded."""
    if isinstance(value, SearchSettings) and not isinstance(value, OtherSearch):
        return value
    raw = handler(value)
    model = model_of(raw.strategy)
    try:
        return raw if model is OtherSearch else model.model_validate(raw.model_dump())
    except ValidationError:
        return raw


AnySearch = Annotated[
    Annotated[AutoSearch, Tag("auto")]
    | Annotated[EliteLoserSearch, Tag("elite-loser")]
    | Annotated[TournamentSearch, Tag("tournament")]
    | Annotated[CmaEsSearch, Tag("cma-es")]
    | Annotated[Nsga2Search, Tag("nsga2")]
    | Annotated[SerializeAsAny[OtherSearch], WrapValidator(_registered), Tag("other")],
    Discriminator(_tag),
]
