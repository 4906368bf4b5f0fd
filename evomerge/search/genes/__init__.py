"""Genes of a search: genomes, mutation and crossover of genes, choice of techniques. Pure."""
