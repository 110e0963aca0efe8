package store

import (
	"bytes"
	"hash/fnv"
	"strings"
	"testing"
)

// A pageFile is a file's bytes, to be broken with care.
type pageFile struct{ data []byte }

// page returns the first page of a kind, with whatever overflows into the next.
func (f pageFile) page(kind uint16) []byte {
	for at := 2 * testPage; ; at += testPage {
		if native.Uint16(f.data[at+8:]) == kind {
			return f.data[at:]
		}
	}
}

// meta returns a meta's fields, of the last commit or of the one before.
func (f pageFile) meta(newest bool) []byte {
	a, b := f.data[pageHeader:][:metaSize], f.data[testPage+pageHeader:][:metaSize]
	if (native.Uint64(a[48:]) > native.Uint64(b[48:])) == newest {
		return a
	}
	return b
}

// setMeta sets a field of the last commit's meta, and its checksum.
func (f pageFile) setMeta(field int, value uint64) {
	meta := f.meta(true)
	native.PutUint64(meta[field:], value)
	sum := fnv.New64a()
	_, _ = sum.Write(meta[:56])
	native.PutUint64(meta[56:], sum.Sum64())
}

// element returns a leaf's or a branch's element.
func element(page []byte, i int) []byte { return page[pageHeader+16*i:] }

func TestCheckLayout(t *testing.T) {
	sound, _ := soundFile(t)
	if err := checkLayout(sound); err != nil {
		t.Fatal(err)
	}
	const rootField, freelistField, highField, txidField = 16, 32, 40, 48
	for _, test := range []struct {
		name string
		harm func(f *pageFile)
		says string
	}{
		{"one meta's checksum", func(f *pageFile) { f.meta(true)[txidField]++ }, "checksum mismatch"},
		{"the older meta's checksum", func(f *pageFile) { f.meta(false)[txidField]-- }, "checksum mismatch"},
		{"a commit that is two ahead", func(f *pageFile) { f.setMeta(txidField, native.Uint64(f.meta(true)[txidField:])+1) }, "do not follow"},
		{"no pages at all", func(f *pageFile) { f.setMeta(highField, 1) }, "no room"},
		{"one page cut off", func(f *pageFile) { f.data = f.data[:testPage*(native.Uint64(f.meta(true)[highField:])-1)] }, "truncated"},
		{"cut off in the second meta", func(f *pageFile) { f.data = f.data[:testPage+20] }, "truncated"},
		{"another version", func(f *pageFile) { f.meta(true)[4]++ }, "no meta page"},
		{"a root that is a meta page", func(f *pageFile) { f.setMeta(rootField, 1) }, "outside of the file"},
		{"a root above the high water mark", func(f *pageFile) { f.setMeta(rootField, native.Uint64(f.meta(true)[highField:])) }, "outside of the file"},
		{"a root that is the free list", func(f *pageFile) { f.setMeta(rootField, native.Uint64(f.meta(true)[freelistField:])) }, "not a tree's"},
		{"a free list that is a leaf", func(f *pageFile) { f.setMeta(freelistField, native.Uint64(f.page(leafPage))) }, "used twice"},
		{"a page under another number", func(f *pageFile) { f.page(branchPage)[0]++ }, "says that it is"},
		{"a page that reaches past the end", func(f *pageFile) { f.page(branchPage)[15] = 0x7F }, "past the end"},
		{"a page that reaches into another", func(f *pageFile) { f.page(branchPage)[12]++ }, "used twice"},
		{"a branch without children", func(f *pageFile) { clear(f.page(branchPage)[10:12]) }, "without children"},
		{"a child that is another's", func(f *pageFile) {
			branch := f.page(branchPage)
			copy(element(branch, 1)[8:16], element(branch, 0)[8:16])
		}, "used twice"},
		{"a branch key that its child is below", func(f *pageFile) { // the last key's last byte but one, up
			branch := f.page(branchPage)
			last := element(branch, int(native.Uint16(branch[10:]))-1)
			last[native.Uint32(last)+native.Uint32(last[4:])-2] = 0xFF
		}, "belongs elsewhere"},
		{"a branch key out of the page", func(f *pageFile) { element(f.page(branchPage), 0)[2] = 1 }, "reach out of the page"},
		{"leaf keys out of order", func(f *pageFile) {
			last := element(f.page(leafPage), 1)
			last[native.Uint32(last[4:])] = 0
		}, "not above"},
		{"a leaf key out of the page", func(f *pageFile) { element(f.page(leafPage), 0)[6] = 1 }, "reach out of the page"},
		{"a leaf value out of the page", func(f *pageFile) { element(f.page(leafPage), 0)[14] = 1 }, "reach out of the page"},
		{"a page in no place", func(f *pageFile) { f.page(freelistPage)[10]-- }, "neither used nor free"},
		{"a free page that is used", func(f *pageFile) { copy(f.page(freelistPage)[pageHeader:], f.page(leafPage)[:8]) }, "used twice"},
		{"a free list with another kind's flags", func(f *pageFile) { f.page(freelistPage)[8] = 0x20 }, "has flags 0x20"},
		{"a free page past the end", func(f *pageFile) { f.page(freelistPage)[pageHeader+7] = 1 }, "outside of the file"},
		{"a free list that is too long", func(f *pageFile) { f.page(freelistPage)[11] = 0xF0 }, "do not fit"},
		{"a free list that is much too long", func(f *pageFile) {
			copy(f.page(freelistPage)[10:], []byte{0xFF, 0xFF})
			native.PutUint64(f.page(freelistPage)[pageHeader:], 1<<61)
		}, "do not fit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &pageFile{data: bytes.Clone(sound)}
			test.harm(f)
			if err := checkLayout(f.data); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want word of %q", err, test.says)
			}
		})
	}
}
