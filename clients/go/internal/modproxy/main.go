// Command modproxy writes modules as a module proxy serves them, so that GOPROXY=file://DIR installs them:
//
//	modproxy VERSION DIR REPOSITORY FOLDER...
//
// The zip of a module is what the go command makes of a tag at HEAD.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: modproxy VERSION DIR REPOSITORY FOLDER...")
		os.Exit(2)
	}
	for _, folder := range os.Args[4:] {
		if err := write(os.Args[1], os.Args[2], os.Args[3], folder); err != nil {
			fmt.Fprintf(os.Stderr, "modproxy: %s: %v\n", folder, err)
			os.Exit(1)
		}
	}
}

// write writes the files of one module.
func write(version, dir, repository, folder string) error {
	mod, err := os.ReadFile(filepath.Join(repository, folder, "go.mod"))
	if err != nil {
		return err
	}
	path := modfile.ModulePath(mod)
	escaped, err := module.EscapePath(path)
	if err != nil {
		return err
	}
	base := filepath.Join(dir, escaped, "@v")
	if err := os.MkdirAll(base, 0o750); err != nil {
		return err
	}
	made, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64) // the same input has the same files
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Unix(made, 0).UTC()})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(version + "\n"), version + ".mod": mod, version + ".info": info} {
		if err := os.WriteFile(filepath.Join(base, name), content, 0o600); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(base, version+".zip"))
	if err != nil {
		return err
	}
	if err := zip.CreateFromVCS(file, module.Version{Path: path, Version: version}, repository, "HEAD", folder); err != nil {
		return err
	}
	return file.Close()
}
