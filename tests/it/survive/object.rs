//! One object in KCP or in a runtime: unreadable custom resources, definitions and namespaces that are deleted.
