"""What a search varies: genomes, mutation and crossover of genes, choice of techniques. Pure."""
