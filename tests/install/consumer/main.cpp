#include <drover/drover.hpp>
#include <iostream>

int main() {
  std::cout << drover::version() << '\n';
  for (const auto& info : drover::select_backend().backend.devices()) std::cout << drover::device_id(info) << '\n';
}
