package main

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/packages"
)

// A graph holds, for each file of one package, the other files of that package that it refers to.
type graph map[string]map[string]bool

// references returns the graph of p's files. It leaves out test files, and files that declare nothing,
// such as doc.go. An edge leads from file A to file B if A names something that B declares: a constant,
// variable, function or type of the package, a method, or a field of a struct. What a function declares
// inside itself makes no edge, because only its own file can name it.
func references(p *packages.Package) graph {
	g := graph{}
	for _, file := range p.Syntax {
		if slices.ContainsFunc(file.Decls, declares) {
			g[fileName(p.Fset, file.FileStart)] = map[string]bool{}
		}
	}
	for ident, obj := range p.TypesInfo.Uses {
		if obj.Pkg() != p.Types {
			continue
		}
		from, to := fileName(p.Fset, ident.Pos()), fileName(p.Fset, obj.Pos())
		if from != to && g[from] != nil && g[to] != nil {
			g[from][to] = true
		}
	}
	return g
}

func declares(decl ast.Decl) bool {
	d, ok := decl.(*ast.GenDecl)
	return !ok || d.Tok != token.IMPORT
}

func fileName(fset *token.FileSet, pos token.Pos) string {
	return filepath.Base(fset.Position(pos).Filename)
}

// largestCycle returns the largest strongly connected component, sorted: the largest set of files each
// of which reaches each other one. Of several that are equally large it returns the one whose first
// name sorts first. It returns nil for a graph without files and one file for a graph without cycles.
func (g graph) largestCycle() []string {
	reached := make(map[string]map[string]bool, len(g))
	for file := range g {
		reached[file] = map[string]bool{}
		g.reach(file, reached[file])
	}
	var largest []string
	for _, file := range slices.Sorted(maps.Keys(g)) {
		var cycle []string
		for _, other := range slices.Sorted(maps.Keys(reached[file])) {
			if reached[other][file] {
				cycle = append(cycle, other)
			}
		}
		if len(cycle) > len(largest) {
			largest = cycle
		}
	}
	return largest
}

func (g graph) reach(file string, seen map[string]bool) {
	if seen[file] {
		return
	}
	seen[file] = true
	for next := range g[file] {
		g.reach(next, seen)
	}
}
