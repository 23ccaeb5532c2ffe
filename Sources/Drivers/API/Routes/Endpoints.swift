extension API {
  /// The operations of the API, in the order in which a 404 lists their paths. Frequent paths are first, so that they
  /// are found first.
  static let endpoints: [any Endpoint.Type] = [
    SendMessages.self, ReceiveMessages.self, MakeCall.self, ReadSession.self, ChangeSession.self, ReadDelivery.self,
    ListConsumers.self, ReadConsumer.self, PutConsumer.self, RemoveConsumer.self, ReceiveFromConsumer.self,
    SettleLeases.self, ReadDeadLetters.self, RemoveDeadLetters.self, RetryDeadLetters.self,
    ListSessions.self, PutSession.self, CloseSession.self, ReadReload.self, StartReload.self,
    ReadStatus.self, LiveProbe.self, ReadyProbe.self, StartProbe.self, ReadMetrics.self, ReadHistory.self,
    ReadErrorPage.self, ReadContract.self,
  ]
}
