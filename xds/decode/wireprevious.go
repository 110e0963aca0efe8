package decode

import (
	"bytes"
	"encoding/binary"
)

// previousGroups are the localities of the previous version of an assignment. A nil one has
// none.
type previousGroups struct {
	groups  []wireGroup
	headers []localityGroup
	index   map[groupKey]int // made when it is needed
}

type groupKey struct {
	locality string
	priority uint32
}

// readPrevious returns the localities of the previous version of the report's assignment.
func readPrevious(r *report) *previousGroups {
	if r.Previous == nil {
		return nil
	}
	before := r.Previous(r.key)
	if before.Assignment == nil || !before.Shareable {
		return nil
	}
	d := &wireAssignment{}
	w := wire{before.Raw, &d.failed}
	w.text(1)
	if d.readGroups(&w); d.failed {
		return nil
	}
	// The value has the localities that were not left out.
	values, weightless := before.Assignment.Localities, r.byHand && weightless(d.headers)
	for i := range d.groups {
		if !d.headers[i].gets(weightless) {
			continue
		}
		if len(values) == 0 || len(values[0].Endpoints) != d.groups[i].size {
			return nil
		}
		d.groups[i].previous = values[0]
		values = values[1:]
	}
	return &previousGroups{groups: d.groups, headers: d.headers}
}

// find returns the locality with the name and priority of g, the i-th of its assignment, or
// nil. It has a value.
func (p *previousGroups) find(i int, g *wireGroup, priority uint32) *wireGroup {
	if p == nil {
		return nil
	}
	if i >= len(p.groups) || p.headers[i].priority != priority || !bytes.Equal(p.groups[i].locality, g.locality) {
		if p.index == nil {
			p.index = make(map[groupKey]int, len(p.groups))
			for i := range p.groups {
				p.index[groupKey{string(p.groups[i].locality), p.headers[i].priority}] = i
			}
		}
		at, ok := p.index[groupKey{string(g.locality), priority}]
		if !ok {
			return nil
		}
		i = at
	}
	if p.groups[i].previous == nil {
		return nil
	}
	return &p.groups[i]
}

// readChanged reads the endpoints of a locality, and takes those of its previous version
// that have the same bytes: those before the first and after the last change, wherever they
// are now, and others at the same position.
func (b *endpointBatch) readChanged(list wire, was *wireGroup) {
	before, values := wire{was.list, list.failed}, was.previous.Endpoints
	common := commonSuffix(list.rest, was.list)
	for i := range b.endpoints {
		if len(list.rest) <= common {
			for len(before.rest) > len(list.rest) {
				before.message(2)
				values = values[1:]
			}
			if len(before.rest) == len(list.rest) { // an element begins here in both
				copy(b.endpoints[i:], values)
				return
			}
		}
		e, _ := list.message(2)
		rest := before
		old, ok := rest.message(2)
		switch {
		case ok && bytes.Equal(e.rest, old.rest):
			b.endpoints[i] = values[0]
			before, values = rest, values[1:]
			continue
		case ok && len(rest.rest) >= common:
			before, values = rest, values[1:]
		}
		b.read(i, e)
	}
}

// commonSuffix returns the number of equal bytes at the ends of a and b.
func commonSuffix(a, b []byte) int {
	n := 0
	for len(a)-n >= 8 && len(b)-n >= 8 && binary.LittleEndian.Uint64(a[len(a)-n-8:]) == binary.LittleEndian.Uint64(b[len(b)-n-8:]) {
		n += 8
	}
	for n < len(a) && n < len(b) && a[len(a)-n-1] == b[len(b)-n-1] {
		n++
	}
	return n
}
