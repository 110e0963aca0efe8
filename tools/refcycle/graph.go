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
	s := search{graph: g, index: map[string]int{}, low: map[string]int{}, onStack: map[string]bool{}}
	for _, file := range slices.Sorted(maps.Keys(g)) {
		if s.index[file] == 0 {
			s.visit(file)
		}
	}
	var largest []string
	for _, c := range s.components {
		if len(c) > len(largest) || len(c) == len(largest) && c[0] < largest[0] {
			largest = c
		}
	}
	return largest
}

// A search is one run of Tarjan's algorithm.
type search struct {
	graph      graph
	index, low map[string]int // counted from 1, in the order of the visits; 0: not visited
	stack      []string
	onStack    map[string]bool
	components [][]string // each sorted
}

func (s *search) visit(file string) {
	s.index[file] = len(s.index) + 1
	s.low[file] = s.index[file]
	s.stack = append(s.stack, file)
	s.onStack[file] = true
	for _, next := range slices.Sorted(maps.Keys(s.graph[file])) {
		if s.index[next] == 0 {
			s.visit(next)
			s.low[file] = min(s.low[file], s.low[next])
		} else if s.onStack[next] {
			s.low[file] = min(s.low[file], s.index[next])
		}
	}
	if s.low[file] != s.index[file] {
		return
	}
	first := slices.Index(s.stack, file)
	component := slices.Sorted(slices.Values(s.stack[first:]))
	s.stack = s.stack[:first]
	for _, member := range component {
		s.onStack[member] = false
	}
	s.components = append(s.components, component)
}
