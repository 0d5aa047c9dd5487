// Package consumers holds the published events against the indexes that routers run:
// llm-d's and AIBrix's, unmodified, in this process, over real sockets, and Dynamo's as a
// process. It is a module of its own, as these bring a few hundred modules. Its tests are
// all that it has:
//
//	cd bench/consumers && go test ./...
//
// Dynamo's need a Python with the wheel ai-dynamo-runtime 1.6.1, which installs without what
// it depends on, and are skipped without:
//
//	python3 -m venv /tmp/dynamo && /tmp/dynamo/bin/pip install --no-deps ai-dynamo-runtime==1.6.1
//	DYNAMO_PYTHON=/tmp/dynamo/bin/python go test -run Dynamo .
package consumers
