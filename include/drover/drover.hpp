// drover/drover.hpp: everything, for users. Parts of drover include what they need instead.
#pragma once

#include "drover/base/bytes.hpp"
#include "drover/base/clock.hpp"
#include "drover/base/config.hpp"
#include "drover/base/error.hpp"
#include "drover/base/fd.hpp"
#include "drover/base/log.hpp"
#include "drover/base/mapping.hpp"
#include "drover/base/trace.hpp"
#include "drover/base/version.hpp"
#include "drover/device/backend.hpp"
#include "drover/device/driver_report.hpp"
#include "drover/device/select.hpp"
#include "drover/ipc/channel.hpp"
#include "drover/observe/doctor.hpp"
#include "drover/process/child_process.hpp"
