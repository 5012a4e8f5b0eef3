//! One conformance suite for the API in memory: the same requests go to a real kube-apiserver and to the simulator, and
//! every answer must be the same but for what the servers make up (uids, versions, times).

mod apply;
mod both;
mod builtin;
mod controllers;
mod custom;
mod fault;
mod kubectl;
mod library;
mod objects;
mod random;
mod refused;
mod served;
mod sides;
mod strange;
mod values;
mod webhook;
mod widget;
