package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A mutant replaces a part of one file.
type mutant struct {
	pkg      *pkg
	file     string
	source   []byte
	from, to int    // the replaced bytes
	text     string // what takes their place
	line     int
	what     string
}

// code returns the whole changed file.
func (m mutant) code() []byte {
	return slices.Concat(m.source[:m.from], []byte(m.text), m.source[m.to:])
}

// swaps are the operators that replace each other. Comparisons move their bound or turn around.
var swaps = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// mutate returns all mutants of a file, in the order of their places. Some of them do not compile.
func mutate(name string) ([]mutant, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	v := &visitor{fset: fset, file: name, source: source}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			v.function(f.Type, f.Body)
		}
	}
	return v.found, nil
}

type visitor struct {
	fset   *token.FileSet
	file   string
	source []byte
	found  []mutant
}

func (v *visitor) replace(from, to token.Pos, text, what string) {
	begin := v.fset.Position(from)
	v.found = append(v.found, mutant{
		file: v.file, source: v.source, line: begin.Line, what: what,
		from: begin.Offset, to: v.fset.Position(to).Offset, text: text,
	})
}

func (v *visitor) swap(at token.Pos, op token.Token) {
	if other, ok := swaps[op]; ok {
		v.replace(at, at+token.Pos(len(op.String())), other.String(), op.String()+" becomes "+other.String())
	}
}

// function visits the body of a function, whose results decide what its return statements mean.
func (v *visitor) function(signature *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			v.function(n.Type, n.Body)
			return false
		case *ast.BinaryExpr:
			v.swap(n.OpPos, n.Op)
		case *ast.IncDecStmt:
			v.swap(n.TokPos, n.Tok)
		case *ast.AssignStmt:
			v.swap(n.TokPos, n.Tok)
		case *ast.BasicLit:
			v.number(n)
		case *ast.Ident:
			v.boolean(n)
		case *ast.IfStmt:
			v.negate(n.Cond)
		case *ast.ForStmt:
			v.negate(n.Cond)
		case *ast.BlockStmt:
			v.remove(n.List)
		case *ast.CaseClause:
			v.remove(n.Body)
		case *ast.CommClause:
			v.remove(n.Body)
		case *ast.ReturnStmt:
			v.dropError(signature, n)
		}
		return true
	})
}

func (v *visitor) number(n *ast.BasicLit) {
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if n.Kind != token.INT || err != nil {
		return
	}
	v.replace(n.Pos(), n.End(), strconv.FormatInt(value+1, 10), n.Value+" becomes "+strconv.FormatInt(value+1, 10))
}

func (v *visitor) boolean(n *ast.Ident) {
	if n.Name == "true" || n.Name == "false" {
		other := strconv.FormatBool(n.Name == "false")
		v.replace(n.Pos(), n.End(), other, n.Name+" becomes "+other)
	}
}

// negate negates a condition. Swapping the operator of a comparison for equality does the same.
func (v *visitor) negate(cond ast.Expr) {
	if b, ok := cond.(*ast.BinaryExpr); cond == nil || ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	text := string(v.source[v.fset.Position(cond.Pos()).Offset:v.fset.Position(cond.End()).Offset])
	v.replace(cond.Pos(), cond.End(), "!("+text+")", "condition negated")
}

// remove removes each statement that only has an effect. Without a declaration the rest would not
// compile, and a log line is for people.
func (v *visitor) remove(list []ast.Stmt) {
	for _, s := range list {
		var what string
		switch s := s.(type) {
		case *ast.ExprStmt:
			if logs(s.X) {
				continue
			}
			what = "call"
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			what = "assignment"
		case *ast.IncDecStmt:
			what = "statement"
		case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
			what = "statement"
		default:
			continue
		}
		v.replace(s.Pos(), s.End(), "", what+" removed")
	}
}

// logs reports whether a call writes a log line.
func logs(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs"}, method.Sel.Name) {
		return false
	}
	name := ""
	switch x := method.X.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return strings.Contains(strings.ToLower(name), "log")
}

// dropError replaces the error that a statement returns by nil.
func (v *visitor) dropError(signature *ast.FuncType, n *ast.ReturnStmt) {
	if signature.Results == nil || len(n.Results) == 0 {
		return
	}
	last := signature.Results.List[len(signature.Results.List)-1]
	if t, ok := last.Type.(*ast.Ident); !ok || t.Name != "error" || len(n.Results) != signature.Results.NumFields() {
		return
	}
	result := n.Results[len(n.Results)-1]
	if i, ok := result.(*ast.Ident); ok && i.Name == "nil" {
		return
	}
	v.replace(result.Pos(), result.End(), "nil", "error not returned")
}
